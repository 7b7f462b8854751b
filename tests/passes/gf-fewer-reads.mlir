// RUN: gf-fewer-reads
// One value of the destinations that stands alone, and one that the source's value scales.
// CHECK: [[BP:%\w+]] = "gf.mul"(%arg0, %arg1) : (tensor<?x16xf32, "dst">
// CHECK: "gf.gather"([[ALL:%\w+]]) {relation = @edges, side = "dst"}
// CHECK: "gf.reduce"
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%b: tensor<?x16xf32, "dst"> {gf.label = "b"}, %p: tensor<?x16xf32, "dst"> {gf.label = "p"}, %a: tensor<?x16xf32, "dst"> {gf.label = "a"}, %q: tensor<?x16xf32, "src"> {gf.label = "q"}) -> tensor<?x16xf32, "src"> {
  %0 = "gf.gather"(%b) {relation = @edges, side = "dst"} : (tensor<?x16xf32, "dst">) -> tensor<?x16xf32, @edges>
  %1 = "gf.gather"(%p) {relation = @edges, side = "dst"} : (tensor<?x16xf32, "dst">) -> tensor<?x16xf32, @edges>
  %2 = "gf.gather"(%a) {relation = @edges, side = "dst"} : (tensor<?x16xf32, "dst">) -> tensor<?x16xf32, @edges>
  %3 = "gf.gather"(%q) {relation = @edges, side = "src"} : (tensor<?x16xf32, "src">) -> tensor<?x16xf32, @edges>
  %4 = "gf.add"(%1, %3) : (tensor<?x16xf32, @edges>, tensor<?x16xf32, @edges>) -> tensor<?x16xf32, @edges>
  %5 = "gf.mul"(%0, %4) : (tensor<?x16xf32, @edges>, tensor<?x16xf32, @edges>) -> tensor<?x16xf32, @edges>
  %6 = "gf.add"(%5, %2) : (tensor<?x16xf32, @edges>, tensor<?x16xf32, @edges>) -> tensor<?x16xf32, @edges>
  %7 = "gf.reduce"(%6) {kind = "sum", relation = @edges, side = "src"} : (tensor<?x16xf32, @edges>) -> tensor<?x16xf32, "src">
  return %7 : tensor<?x16xf32, "src">
}
