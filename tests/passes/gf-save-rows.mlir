// The gradient of a maximum needs the maximum: it becomes an output, and then an input.
// RUN: gf-save-rows,gf-vjp{present=0}
// CHECK: func.func @f([[M:%\w+]]: tensor<?x4xf32, @edges> {gf.label = "m"}, [[Y:%\w+]]: tensor<?x4xf32, "dst"> {gf.label = "output0"}
// CHECK-NOT: kind = "max"
// CHECK: [[G:%\w+]] = "gf.gather"([[Y]])
// CHECK: "gf.is_max"([[M]], [[G]])
// CHECK-NOT: kind = "max"
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges> {gf.label = "m"}) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.reduce"(%m) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %0 : tensor<?x4xf32, "dst">
}

// -----
// A sum of squares saves nothing: its gradient reads the message alone.
// RUN: gf-save-rows
// CHECK: return [[Y:%\w+]] : tensor<?x4xf32, "dst">
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.mul"(%m, %m) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %1 : tensor<?x4xf32, "dst">
}
