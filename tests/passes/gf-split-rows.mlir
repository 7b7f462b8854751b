// Sums of 16-bit fields are wider than the result, and could not wait in its memory. So the part of
// the walk that stores what the next reads across edges is split off; the rest joins the next.
// RUN: gf-form-rows,gf-split-rows,gf-iter-schedule
// CHECK: "gf.exp"
// CHECK: joins_next = false
// CHECK: "gf_iter.walk"
// CHECK: side = "dst"
// CHECK: joins_next = true
// CHECK: "gf_iter.walk"
// CHECK: side = "src"
// CHECK: joins_next = false
// CHECK: return
"gf.relation"() {sym_name = "edges", src = "node", dst = "node"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "node">) -> tensor<?x4xbf16, "node"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %2 = "gf.exp"(%1) : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, "node">
  %3 = "gf.gather"(%2) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %5 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "src"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %6 = "gf.add"(%4, %5) : (tensor<?x4xf32, "node">, tensor<?x4xf32, "node">) -> tensor<?x4xf32, "node">
  %7 = "gf.cast"(%6) {to = bf16} : (tensor<?x4xf32, "node">) -> tensor<?x4xbf16, "node">
  return %7 : tensor<?x4xbf16, "node">
}

// -----
// In the type of the fields it waits in the memory of the result: nothing is split.
// RUN: gf-form-rows,gf-split-rows
// CHECK: "gf_iter.walk"
// CHECK: "gf_iter.walk"
// CHECK-NOT: "gf_iter.walk"
// CHECK: return
"gf.relation"() {sym_name = "edges", src = "node", dst = "node"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "node">) -> tensor<?x4xf32, "node"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %2 = "gf.exp"(%1) : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, "node">
  %3 = "gf.gather"(%2) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "node">) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %5 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "src"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "node">
  %6 = "gf.add"(%4, %5) : (tensor<?x4xf32, "node">, tensor<?x4xf32, "node">) -> tensor<?x4xf32, "node">
  return %6 : tensor<?x4xf32, "node">
}
