// Every edge looks a table up by what its source has: the sources look it up.
// RUN: gf-near-tables
// CHECK: [[L:%\w+]] = "gf.lookup"({{%\w+}}, {{%\w+}}) : (tensor<6x4xf32>, tensor<?xi64, "src">)
// CHECK: "gf.gather"([[L]])
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%t: tensor<6x4xf32>, %k: tensor<?xi64, "src">) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%k) {relation = @edges, side = "src"} : (tensor<?xi64, "src">) -> tensor<?xi64, @edges>
  %1 = "gf.lookup"(%t, %0) : (tensor<6x4xf32>, tensor<?xi64, @edges>) -> tensor<?x4xf32, @edges>
  %2 = "gf.reduce"(%1) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %2 : tensor<?x4xf32, "dst">
}
