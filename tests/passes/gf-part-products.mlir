// Each part of a joined value meets its rows of the matrix; what a number scales is scaled after.
// RUN: gf-part-products
// CHECK: [[A:%\w+]] = "gf.take"(%arg3)
// CHECK: [[P:%\w+]] = "gf.contract"(%arg0, [[A]])
// CHECK: [[B:%\w+]] = "gf.take"(%arg3)
// CHECK: [[Q:%\w+]] = "gf.contract"(%arg1, [[B]])
// CHECK: [[S:%\w+]] = "gf.broadcast"(%arg2)
// CHECK: [[R:%\w+]] = "gf.mul"([[Q]], [[S]])
// CHECK: "gf.add"([[P]], [[R]])
// CHECK-NOT: gf.concat
func.func @f(%x: tensor<?x16xf32, "dst">, %y: tensor<?x16xf32, "dst">, %s: tensor<?x1xf32, "dst">, %w: tensor<32x8xf32>) -> tensor<?x8xf32, "dst"> {
  %0 = "gf.broadcast"(%s) {to = array<i64: 16>} : (tensor<?x1xf32, "dst">) -> tensor<?x16xf32, "dst">
  %1 = "gf.mul"(%y, %0) : (tensor<?x16xf32, "dst">, tensor<?x16xf32, "dst">) -> tensor<?x16xf32, "dst">
  %2 = "gf.part"(%x) : (tensor<?x16xf32, "dst">) -> !gf.hidden
  %3 = "gf.part"(%1) : (tensor<?x16xf32, "dst">) -> !gf.hidden
  %4 = "gf.concat"(%2, %3) {axis = 0} : (!gf.hidden, !gf.hidden) -> tensor<?x32xf32, "dst">
  %5 = "gf.contract"(%4, %w) : (tensor<?x32xf32, "dst">, tensor<32x8xf32>) -> tensor<?x8xf32, "dst">
  return %5 : tensor<?x8xf32, "dst">
}
