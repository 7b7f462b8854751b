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
// -----
// A product with a difference of both ends' values: two products of nodes.
// RUN: gf-hoist
// CHECK: [[P:%\w+]] = "gf.contract"(%arg0, %arg2) : (tensor<?x16xf32, "src">
// CHECK-NEXT: [[G:%\w+]] = "gf.gather"([[P]]) {relation = @edges, side = "src"}
// CHECK-NEXT: [[Q:%\w+]] = "gf.contract"(%arg1, %arg2) : (tensor<?x16xf32, "dst">
// CHECK-NEXT: [[H:%\w+]] = "gf.gather"([[Q]]) {relation = @edges, side = "dst"}
// CHECK-NEXT: "gf.sub"([[G]], [[H]]) : (tensor<?x4xf32, @edges>
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x16xf32, "src">, %y: tensor<?x16xf32, "dst">, %w: tensor<16x4xf32>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x16xf32, "src">) -> tensor<?x16xf32, @edges>
  %1 = "gf.gather"(%y) {relation = @edges, side = "dst"} : (tensor<?x16xf32, "dst">) -> tensor<?x16xf32, @edges>
  %2 = "gf.sub"(%0, %1) : (tensor<?x16xf32, @edges>, tensor<?x16xf32, @edges>) -> tensor<?x16xf32, @edges>
  %3 = "gf.contract"(%2, %w) : (tensor<?x16xf32, @edges>, tensor<16x4xf32>) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %4 : tensor<?x4xf32, "dst">
}
// -----
// Narrow ones, such as coordinates, are subtracted first: their products would cancel.
// RUN: gf-hoist
// CHECK: [[D:%\w+]] = "gf.sub"({{.*}}) : (tensor<?x3xf32, @edges>
// CHECK-NEXT: "gf.contract"([[D]], %arg2) : (tensor<?x3xf32, @edges>
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x3xf32, "src">, %y: tensor<?x3xf32, "dst">, %w: tensor<3x4xf32>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x3xf32, "src">) -> tensor<?x3xf32, @edges>
  %1 = "gf.gather"(%y) {relation = @edges, side = "dst"} : (tensor<?x3xf32, "dst">) -> tensor<?x3xf32, @edges>
  %2 = "gf.sub"(%0, %1) : (tensor<?x3xf32, @edges>, tensor<?x3xf32, @edges>) -> tensor<?x3xf32, @edges>
  %3 = "gf.contract"(%2, %w) : (tensor<?x3xf32, @edges>, tensor<3x4xf32>) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %4 : tensor<?x4xf32, "dst">
}
