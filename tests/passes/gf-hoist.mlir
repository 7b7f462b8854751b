// Work on one end of the edges moves to its nodes; work on both ends stays.
// RUN: gf-hoist
// CHECK: func.func @f([[X:%\w+]]: tensor<?x4xf32, "src">{{.*}}, [[Y:%\w+]]: tensor<?x4xf32, "dst">
// CHECK: [[E:%\w+]] = "gf.exp"([[X]]) : (tensor<?x4xf32, "src">)
// CHECK: [[G:%\w+]] = "gf.gather"([[E]]) {relation = @edges, side = "src"}
// CHECK: [[H:%\w+]] = "gf.gather"([[Y]])
// CHECK: "gf.mul"([[G]], [[H]]) : (tensor<?x4xf32, @edges>
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "src">, %y: tensor<?x4xf32, "dst">) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.exp"(%0) : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %2 = "gf.gather"(%y) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %3 = "gf.mul"(%1, %2) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %4 : tensor<?x4xf32, "dst">
}
