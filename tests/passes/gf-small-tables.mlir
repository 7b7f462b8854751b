// Sums by an index into three numbers are sums over edges of what each adds to all of them.
// RUN: gf-small-tables
// CHECK-NOT: "gf.index_sum"
// CHECK: [[N:%\w+]] = "gf.eq"
// CHECK: [[A:%\w+]] = "gf.where"([[N]]
// CHECK: [[R:%\w+]] = "gf.reduce"([[A]]) {kind = "sum", relation = @edges, side = "dst"}
// CHECK: "gf.reduce_all"([[R]])
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%i: tensor<?xi64, @edges>, %x: tensor<?xf32, "src">) -> tensor<3xf32> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?xf32, "src">) -> tensor<?xf32, @edges>
  %1 = "gf.index_sum"(%i, %0) {extent = 3 : i64} : (tensor<?xi64, @edges>, tensor<?xf32, @edges>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
