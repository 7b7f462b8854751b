// Every edge divides by what its row has: the row finds the inverse.
// RUN: gf-inverses
// CHECK: [[I:%\w+]] = "gf.div"({{%\w+}}, [[D:%\w+]])
// CHECK: [[G:%\w+]] = "gf.gather"([[I]])
// CHECK: "gf.mul"({{%\w+}}, [[G]])
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%w: tensor<?xf32, @edges>, %d: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.gather"(%d) {relation = @edges, side = "dst"} : (tensor<?xf32, "dst">) -> tensor<?xf32, @edges>
  %1 = "gf.div"(%w, %0) : (tensor<?xf32, @edges>, tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
  %2 = "gf.reduce"(%1) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "dst">
  return %2 : tensor<?xf32, "dst">
}
