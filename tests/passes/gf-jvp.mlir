// Tangents go the way of the values.
// RUN: gf-jvp{moving=x}
// CHECK: func.func @f({{.*}}, [[T:%\w+]]: tensor<?x4xf32, "src"> {gf.label = "tangent0"}) -> tensor<?x4xf32, "dst">
// CHECK: [[G:%\w+]] = "gf.gather"([[T]])
// CHECK: [[M:%\w+]] = "gf.mul"([[G]], {{.*}})
// CHECK: [[R:%\w+]] = "gf.reduce"([[M]])
// CHECK-NEXT: return [[R]]
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "src"> {gf.label = "x"}, %w: tensor<?x4xf32, @edges> {gf.label = "w"}) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.mul"(%0, %w) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %2 = "gf.reduce"(%1) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %2 : tensor<?x4xf32, "dst">
}
