// A gather of nothing is nothing, and what is joined with it is all there is.
// RUN: gf-drop-empty
// CHECK: func.func @f([[X:%\w+]]: tensor<?x4xf32, "src">
// CHECK-NEXT: [[G:%\w+]] = "gf.gather"([[X]])
// CHECK-NEXT: [[R:%\w+]] = "gf.reduce"([[G]])
// CHECK-NEXT: [[N:%\w+]] = "gf.constant"
// CHECK-NEXT: return [[R]], [[N]]
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "src">, %y: tensor<?x0xf32, "src">) -> (tensor<?x4xf32, "dst">, tensor<?x0xf32, "dst">) {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.gather"(%y) {relation = @edges, side = "src"} : (tensor<?x0xf32, "src">) -> tensor<?x0xf32, @edges>
  %2 = "gf.part"(%0) : (tensor<?x4xf32, @edges>) -> !gf.hidden
  %3 = "gf.part"(%1) : (tensor<?x0xf32, @edges>) -> !gf.hidden
  %4 = "gf.concat"(%2, %3) {axis = 0} : (!gf.hidden, !gf.hidden) -> tensor<?x4xf32, @edges>
  %5 = "gf.reduce"(%4) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  %6 = "gf.reduce"(%1) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x0xf32, @edges>) -> tensor<?x0xf32, "dst">
  return %5, %6 : tensor<?x4xf32, "dst">, tensor<?x0xf32, "dst">
}
