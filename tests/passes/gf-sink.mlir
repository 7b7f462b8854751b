// A product that edges read in heads is stored once, as it is.
// RUN: gf-sink
// CHECK: [[P:%\w+]] = "gf.contract"
// CHECK: [[G:%\w+]] = "gf.gather"([[P]])
// CHECK-NEXT: [[R:%\w+]] = "gf.reshape"([[G]])
// CHECK-NEXT: "gf.reduce"([[R]])
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "src">, %w: tensor<4x6xf32>) -> tensor<?x2x3xf32, "dst"> {
  %0 = "gf.contract"(%x, %w) : (tensor<?x4xf32, "src">, tensor<4x6xf32>) -> tensor<?x6xf32, "src">
  %1 = "gf.reshape"(%0) {to = array<i64: 2, 3>} : (tensor<?x6xf32, "src">) -> tensor<?x2x3xf32, "src">
  %2 = "gf.gather"(%1) {relation = @edges, side = "src"} : (tensor<?x2x3xf32, "src">) -> tensor<?x2x3xf32, @edges>
  %3 = "gf.reduce"(%2) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x2x3xf32, @edges>) -> tensor<?x2x3xf32, "dst">
  return %3 : tensor<?x2x3xf32, "dst">
}
