// What a phase needs of the same rows comes from the phase before: one walk, two loops.
// RUN: gf-form-rows
// CHECK: [[W:%\w+]] = "gf_iter.walk"
// CHECK: [[M:%\w+]] = "gf_iter.array"
// CHECK: [[P:%\w+]] = "gf_iter.phase"
// CHECK: [[V:%\w+]] = "gf_iter.read"([[M]]) {at = "edge"} : (tensor<?x4xf32, @edges>) -> tensor<4xf32, @edges>
// CHECK: [[R:%\w+]] = "gf.reduce"([[V]]) {kind = "max", relation = @edges, side = "dst"} : (tensor<4xf32, @edges>) -> tensor<4xf32, "dst">
// CHECK-NEXT: "gf_iter.carry"([[R]]) {slot = 0 : i64}
// CHECK: [[MAX:%\w+]] = "gf_iter.result"([[P]]) {slot = 0 : i64}
// CHECK: "gf_iter.phase"
// CHECK: "gf.gather"([[MAX]])
// CHECK: "gf_iter.store"({{.*}}) {slot = 0 : i64}
// CHECK: }) {relation = @edges, side = "dst"}
// CHECK-NOT: gf_iter.walk
// CHECK: [[Y:%\w+]] = "gf_iter.result"([[W]]) {slot = 0 : i64} : (!gf_iter.done) -> tensor<?x4xf32, "dst">
// CHECK-NEXT: return [[Y]]
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.reduce"(%m) {kind = "max", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  %1 = "gf.gather"(%0) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %2 = "gf.sub"(%m, %1) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %3 = "gf.exp"(%2) : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %4 : tensor<?x4xf32, "dst">
}

// -----
// What the other end of the edges needs must be stored first: two walks.
// RUN: gf-form-rows
// CHECK: gf_iter.walk
// CHECK: }) {relation = @edges, side = "dst"}
// CHECK: [[S:%\w+]] = "gf_iter.result"
// CHECK: gf_iter.walk
// CHECK: [[A:%\w+]] = "gf_iter.array"([[S]])
// CHECK: "gf_iter.read"([[A]]) {at = "other"}
// CHECK: }) {relation = @edges, side = "src"}
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "src"> {
  %0 = "gf.reduce"(%m) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  %1 = "gf.gather"(%0) {relation = @edges, side = "dst"} : (tensor<?x4xf32, "dst">) -> tensor<?x4xf32, @edges>
  %2 = "gf.reduce"(%1) {kind = "sum", relation = @edges, side = "src"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "src">
  return %2 : tensor<?x4xf32, "src">
}
