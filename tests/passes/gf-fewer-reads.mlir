// Of three values of the destinations two are left: one that the source's value scales, one that
// stands alone.
// RUN: gf-fewer-reads
// CHECK: [[BP:%\w+]] = "gf.mul"(%arg0, %arg1) : (tensor<?x16xf32, "dst">
// CHECK: [[ALL:%\w+]] = "gf.add"([[BP]], %arg2) : (tensor<?x16xf32, "dst">
// CHECK: "gf.gather"([[ALL]]) {relation = @edges, side = "dst"}
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
// -----
// Who reaches the maximum of a destination is told by one value of it, the least winning source.
// RUN: gf-fewer-reads
// CHECK: [[Q:%\w+]] = "gf.gather"(%arg0) {relation = @edges, side = "src"}
// CHECK: [[LEAST:%\w+]] = "gf.reduce"({{.*}}) {kind = "min", relation = @edges, side = "dst"}
// CHECK: [[BOUND:%\w+]] = "gf.where"({{%\w+}}, [[LEAST]], %arg2)
// CHECK-NEXT: [[G:%\w+]] = "gf.gather"([[BOUND]]) {relation = @edges, side = "dst"}
// CHECK-NEXT: [[WINS:%\w+]] = "gf.is_max"([[Q]], [[G]])
// CHECK: [[M:%\w+]] = "gf.where"([[WINS]]
// CHECK-NEXT: "gf.reduce"([[M]]) {kind = "sum", relation = @edges, side = "src"}
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%q: tensor<?x4xf32, "src">, %p: tensor<?x4xf32, "dst">, %m: tensor<?x4xf32, "dst">, %g: tensor<?x4xf32, "dst">) -> tensor<?x4xf32, "src"> {
  %0 = "gf.gather"(%q) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.gather"(%p) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %2 = "gf.add"(%0, %1) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %3 = "gf.gather"(%m) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %4 = "gf.is_max"(%2, %3) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xi1, @edges>
  %5 = "gf.gather"(%g) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %6 = "gf.constant"() {text = "0x0.0p+0"} : () -> tensor<?x4xf32, @edges>
  %7 = "gf.where"(%4, %5, %6) : (tensor<?x4xi1, @edges>, tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %8 = "gf.reduce"(%7) {kind = "sum", relation = @edges, side = "src"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "src">
  return %8 : tensor<?x4xf32, "src">
}
