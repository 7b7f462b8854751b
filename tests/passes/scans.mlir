// What the verifiers and the reader refuse of scans, their regions, and scattered sums.
// RUN:
// ERROR: gf.scan_after: attribute 'reverse' is of kind BoolAttr, got 0 : i64
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = 0, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: attribute 'step' is missing
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: 2 labels for 1 inputs of a region
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry", "x"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: expected an array of strings, got [1]
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = [1]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.tanh: expected result float32[]@global, got float64[]@global
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f64>
    %4 = "gf.part"(%3) : (tensor<f64>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: float32[2]@global is not float32[]@dst
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.broadcast"(%c) {to = array<i64: 2>} : (tensor<f32>) -> tensor<2xf32>
    %4 = "gf.part"(%3) : (tensor<2xf32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: expected an op of the gf dialect, got arith.addf
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = arith.addf %c, %c : tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf.scan_after: its region uses a value from outside
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">) -> tensor<?xf32, "dst"> {
  %0 = "gf.part"(%s) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    "gf.yield"(%0) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}

// -----
// RUN:
// ERROR: gf_iter.phase: its scans run in one direction, got both
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%s) : (tensor<?xf32, "dst">) -> tensor<?xf32, "dst">
    %b = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %r = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "dst">) -> tensor<f32, "dst">
    %h = "gf.part"(%r) : (tensor<f32, "dst">) -> !gf.hidden
    %p = "gf_iter.phase"() ({
      %e = "gf_iter.read"(%b) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      %x = "gf.scan_after"(%h) ({
      ^bb0(%c: tensor<f32>):
        %t = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
        %u = "gf.part"(%t) : (tensor<f32>) -> !gf.hidden
        "gf.yield"(%u) : (!gf.hidden) -> ()
      }, {
        "gf.yield"() : () -> ()
      }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<f32, "dst">
      %y = "gf.scan_after"(%h) ({
      ^bb0(%c: tensor<f32>):
        %t = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
        %u = "gf.part"(%t) : (tensor<f32>) -> !gf.hidden
        "gf.yield"(%u) : (!gf.hidden) -> ()
      }, {
        "gf.yield"() : () -> ()
      }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = true, step = ["carry"]} : (!gf.hidden) -> tensor<f32, "dst">
      "gf_iter.carry"(%x) {slot = 0} : (tensor<f32, "dst">) -> ()
      "gf_iter.carry"(%y) {slot = 1} : (tensor<f32, "dst">) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf.scan_before (-:13): no phase up to here carries this scan
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%s) : (tensor<?xf32, "dst">) -> tensor<?xf32, "dst">
    %b = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %r = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "dst">) -> tensor<f32, "dst">
    %h = "gf.part"(%r) : (tensor<f32, "dst">) -> !gf.hidden
    %p = "gf_iter.phase"() ({
      %e = "gf_iter.read"(%b) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      %x = "gf.scan_before"(%h) ({
      ^bb0(%c: tensor<f32>):
        %t = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
        %u = "gf.part"(%t) : (tensor<f32>) -> !gf.hidden
        "gf.yield"(%u) : (!gf.hidden) -> ()
      }, {
        "gf.yield"() : () -> ()
      }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<f32, @edges>
      "gf_iter.store"(%x) {slot = 0} : (tensor<f32, @edges>) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_iter.carry: expected a result at the rows (dst), got one at src
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%s) : (tensor<?xf32, "dst">) -> tensor<?xf32, "dst">
    %b = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %r = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "dst">) -> tensor<f32, "dst">
    %h = "gf.part"(%r) : (tensor<f32, "dst">) -> !gf.hidden
    %p = "gf_iter.phase"() ({
      %e = "gf_iter.read"(%b) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      %x = "gf.reduce"(%e) {kind = "sum", relation = @edges, side = "src"} : (tensor<f32, @edges>) -> tensor<f32, "src">
      "gf_iter.carry"(%x) {slot = 0} : (tensor<f32, "src">) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_iter.store: only sums are scattered, got max
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%s) : (tensor<?xf32, "dst">) -> tensor<?xf32, "dst">
    %b = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %r = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "dst">) -> tensor<f32, "dst">
    %h = "gf.part"(%r) : (tensor<f32, "dst">) -> !gf.hidden
    %p = "gf_iter.phase"() ({
      %e = "gf_iter.read"(%b) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      %x = "gf.reduce"(%e) {kind = "max", relation = @edges, side = "src"} : (tensor<f32, @edges>) -> tensor<f32, "src">
      "gf_iter.store"(%x) {slot = 0} : (tensor<f32, "src">) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_iter.store: a phase carries a reduction at its rows, and stores one at the other end
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<?xf32, "dst">, %m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%s) : (tensor<?xf32, "dst">) -> tensor<?xf32, "dst">
    %b = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %r = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "dst">) -> tensor<f32, "dst">
    %h = "gf.part"(%r) : (tensor<f32, "dst">) -> !gf.hidden
    %p = "gf_iter.phase"() ({
      %e = "gf_iter.read"(%b) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      %x = "gf.reduce"(%e) {kind = "sum", relation = @edges, side = "dst"} : (tensor<f32, @edges>) -> tensor<f32, "dst">
      "gf_iter.store"(%x) {slot = 0} : (tensor<f32, "dst">) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}
