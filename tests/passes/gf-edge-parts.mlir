// A split product is a product for each part; sums of what is joined again are those of the parts.
// RUN: gf-edge-parts
// CHECK-DAG: [[A:%\w+]] = "gf.take"(%arg1) {axis = 1 : i64, positions = array<i64: 0
// CHECK-DAG: [[B:%\w+]] = "gf.take"(%arg1) {axis = 1 : i64, positions = array<i64: 16
// CHECK-DAG: [[P:%\w+]] = "gf.contract"({{%\w+}}, [[A]])
// CHECK-DAG: [[Q:%\w+]] = "gf.contract"({{%\w+}}, [[B]])
// CHECK: "gf.reduce"
// CHECK: "gf.reduce"
// CHECK: "gf.concat"
// CHECK-NOT: gf.put
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x8xf32, "src">, %w: tensor<8x32xf32>) -> tensor<?x32xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x8xf32, "src">) -> tensor<?x8xf32, @edges>
  %1 = "gf.contract"(%0, %w) : (tensor<?x8xf32, @edges>, tensor<8x32xf32>) -> tensor<?x32xf32, @edges>
  %2 = "gf.take"(%1) {axis = 0 : i64, positions = array<i64: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>} : (tensor<?x32xf32, @edges>) -> tensor<?x16xf32, @edges>
  %3 = "gf.take"(%1) {axis = 0 : i64, positions = array<i64: 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31>} : (tensor<?x32xf32, @edges>) -> tensor<?x16xf32, @edges>
  %4 = "gf.mul"(%2, %3) : (tensor<?x16xf32, @edges>, tensor<?x16xf32, @edges>) -> tensor<?x16xf32, @edges>
  %5 = "gf.put"(%4) {axis = 0 : i64, extent = 32 : i64, positions = array<i64: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>} : (tensor<?x16xf32, @edges>) -> tensor<?x32xf32, @edges>
  %6 = "gf.put"(%3) {axis = 0 : i64, extent = 32 : i64, positions = array<i64: 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31>} : (tensor<?x16xf32, @edges>) -> tensor<?x32xf32, @edges>
  %7 = "gf.add"(%5, %6) : (tensor<?x32xf32, @edges>, tensor<?x32xf32, @edges>) -> tensor<?x32xf32, @edges>
  %8 = "gf.reduce"(%7) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x32xf32, @edges>) -> tensor<?x32xf32, "dst">
  return %8 : tensor<?x32xf32, "dst">
}
