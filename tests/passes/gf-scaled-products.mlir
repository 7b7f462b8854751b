// One product of a value that is joined with a scaled copy; the copy's part is scaled after.
// RUN: gf-scaled-products
// CHECK: [[A:%\w+]] = "gf.take"(%arg2)
// CHECK: [[B:%\w+]] = "gf.take"(%arg2)
// CHECK: [[P:%\w+]] = "gf.contract"(%arg0
// CHECK: [[Q:%\w+]] = "gf.take"([[P]])
// CHECK: [[R:%\w+]] = "gf.take"([[P]])
// CHECK: [[S:%\w+]] = "gf.broadcast"(%arg1)
// CHECK: [[T:%\w+]] = "gf.mul"([[R]], [[S]])
// CHECK: "gf.add"([[Q]], [[T]])
func.func @f(%y: tensor<?x16xf32, "dst">, %s: tensor<?x1xf32, "dst">, %w: tensor<32x4xf32>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.broadcast"(%s) {to = array<i64: 16>} : (tensor<?x1xf32, "dst">) -> tensor<?x16xf32, "dst">
  %1 = "gf.mul"(%y, %0) : (tensor<?x16xf32, "dst">, tensor<?x16xf32, "dst">) -> tensor<?x16xf32, "dst">
  %2 = "gf.part"(%y) : (tensor<?x16xf32, "dst">) -> !gf.hidden
  %3 = "gf.part"(%1) : (tensor<?x16xf32, "dst">) -> !gf.hidden
  %4 = "gf.concat"(%2, %3) {axis = 0} : (!gf.hidden, !gf.hidden) -> tensor<?x32xf32, "dst">
  %5 = "gf.contract"(%4, %w) : (tensor<?x32xf32, "dst">, tensor<32x4xf32>) -> tensor<?x4xf32, "dst">
  return %5 : tensor<?x4xf32, "dst">
}
