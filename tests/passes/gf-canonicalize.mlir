// A sum over all edges is taken by rows first; the sign of a message leaves its sum.
// RUN: gf-canonicalize
// CHECK: func.func @total([[X:%\w+]]: tensor<?x4xf32, "src">
// CHECK-NEXT: [[G:%\w+]] = "gf.gather"([[X]])
// CHECK-NEXT: [[S:%\w+]] = "gf.reduce"([[G]]) {kind = "sum", relation = @edges, side = "dst"}
// CHECK-NEXT: "gf.reduce_all"([[S]]) : (tensor<?x4xf32, "dst">) -> tensor<4xf32>
// CHECK: func.func @signs
// CHECK-NOT: "gf.neg"({{.*}}) : (tensor<?x4xf32, @edges>)
// CHECK: [[S:%\w+]] = "gf.reduce"
// CHECK-NEXT: "gf.neg"([[S]]) : (tensor<?x4xf32, "dst">)
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @total(%x: tensor<?x4xf32, "src">) -> tensor<4xf32> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.reduce_all"(%0) : (tensor<?x4xf32, @edges>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @signs(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.neg"(%m) : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %1 : tensor<?x4xf32, "dst">
}
