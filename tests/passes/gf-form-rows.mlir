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

// -----
// A scan is carried by its phase; a sum at the other end of what it makes is scattered from there.
// RUN: gf-form-rows
// CHECK: [[S:%\w+]] = "gf_iter.read"({{%\w+}}) {at = "row"}
// CHECK: [[P:%\w+]] = "gf_iter.phase"
// CHECK: [[X:%\w+]] = "gf_iter.read"({{%\w+}}) {at = "edge"}
// CHECK: [[A:%\w+]] = "gf.part"([[S]])
// CHECK-NEXT: [[B:%\w+]] = "gf.part"([[X]])
// CHECK-NEXT: [[AFTER:%\w+]] = "gf.scan_after"([[A]], [[B]]) ({
// CHECK-NEXT: ^bb0([[CARRY:%\w+]]: tensor<f32>, [[E:%\w+]]: tensor<f32>):
// CHECK-NEXT: [[M:%\w+]] = "gf.mul"([[CARRY]], [[E]])
// CHECK: }) {join = [], read = array<i64>, relation = @edges, reverse = false, root = -1 : i64, side = "dst", step = ["carry", "x"]}
// CHECK-NEXT: "gf_iter.carry"([[AFTER]]) {slot = 0 : i64}
// CHECK: [[BEFORE:%\w+]] = "gf.scan_before"
// CHECK: [[R:%\w+]] = "gf.reduce"([[BEFORE]]) {kind = "sum", relation = @edges, side = "src"}
// CHECK-NEXT: "gf_iter.store"([[R]]) {slot = 1 : i64} : (tensor<f32, "src">) -> ()
// CHECK: [[Y:%\w+]] = "gf_iter.result"([[P]]) {slot = 0 : i64} : (!gf_iter.done) -> tensor<f32, "dst">
// CHECK-NEXT: "gf_iter.store"([[Y]]) {slot = 0 : i64}
// CHECK-NOT: gf_iter.walk
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %x: tensor<?xf32, @edges>) -> (tensor<?xf32, "dst">, tensor<?xf32, "src">) {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.part"(%x) : (tensor<?xf32, @edges>) -> !gf.hidden
  %2 = "gf.scan_after"(%0, %1) ({
  ^bb0(%c: tensor<f32>, %e: tensor<f32>):
    %5 = "gf.mul"(%c, %e) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %6 = "gf.part"(%5) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%6) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry", "x"]} : (!gf.hidden, !gf.hidden) -> tensor<?xf32, "dst">
  %3 = "gf.scan_before"(%0, %1) ({
  ^bb0(%c: tensor<f32>, %e: tensor<f32>):
    %5 = "gf.mul"(%c, %e) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %6 = "gf.part"(%5) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%6) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry", "x"]} : (!gf.hidden, !gf.hidden) -> tensor<?xf32, @edges>
  %4 = "gf.reduce"(%3) {kind = "sum", relation = @edges, side = "src"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "src">
  return %2, %4 : tensor<?xf32, "dst">, tensor<?xf32, "src">
}

// -----
// Two walks cannot share a scan's carries, and only sums are scattered.
// RUN: gf-form-rows
// ERROR: a max at one end over a scan of the other
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "src"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_before"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, @edges>
  %2 = "gf.reduce"(%1) {kind = "max", relation = @edges, side = "src"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "src">
  return %2 : tensor<?xf32, "src">
}
