// A matrix of six elements is multiplied element by element.
// RUN: gf-small-products
// CHECK-NOT: "gf.contract"
// CHECK: [[P:%\w+]] = "gf.mul"
// CHECK: "gf.feature_sum"([[P]]) {axis = 0 : i64} : (tensor<?x3x2xf32, @edges>)
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x3xf32, @edges>, %w: tensor<3x2xf32>) -> tensor<?x2xf32, "dst"> {
  %0 = "gf.contract"(%x, %w) : (tensor<?x3xf32, @edges>, tensor<3x2xf32>) -> tensor<?x2xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x2xf32, @edges>) -> tensor<?x2xf32, "dst">
  return %1 : tensor<?x2xf32, "dst">
}
