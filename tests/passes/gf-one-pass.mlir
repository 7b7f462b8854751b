// A sum of shares of a row's total: the total divides the sum, not every edge.
// RUN: gf-one-pass
// CHECK: func.func @f([[W:%\w+]]: tensor<?xf32, @edges>
// CHECK: [[T:%\w+]] = "gf.reduce"([[W]]) {kind = "sum", relation = @edges, side = "dst"}
// CHECK: "gf.div"({{%\w+}}, [[T]])
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%w: tensor<?xf32, @edges>, %x: tensor<?xf32, @edges>) -> tensor<?xf32, "dst"> {
  %0 = "gf.reduce"(%w) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "dst">
  %1 = "gf.gather"(%0) {relation = @edges, side = "dst"} : (tensor<?xf32, "dst">) -> tensor<?xf32, @edges>
  %2 = "gf.mul"(%w, %x) : (tensor<?xf32, @edges>, tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
  %3 = "gf.div"(%2, %1) : (tensor<?xf32, @edges>, tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "dst">
  return %4 : tensor<?xf32, "dst">
}
