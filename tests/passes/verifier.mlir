// What the verifiers refuse, without any pass.
// RUN:
// ERROR: text:6: gf.gather: attribute 'note' is not declared (declared: relation, side)
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, @edges> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src", note = 1} : (tensor<?xf32, "src">) -> tensor<?xf32, @edges>
  return %0 : tensor<?xf32, @edges>
}

// -----
// RUN:
// ERROR: gf.gather: no relation @edges is declared
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, @edges> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?xf32, "src">) -> tensor<?xf32, @edges>
  return %0 : tensor<?xf32, @edges>
}

// -----
// RUN:
// ERROR: gf.feature_sum: expected result float32[3]@src, got float32[4]@src
func.func @f(%x: tensor<?x4x3xf32, "src">) -> tensor<?x4xf32, "src"> {
  %0 = "gf.feature_sum"(%x) {axis = 0 : i64} : (tensor<?x4x3xf32, "src">) -> tensor<?x4xf32, "src">
  return %0 : tensor<?x4xf32, "src">
}

// -----
// RUN:
// ERROR: gf.add: add on
func.func @f(%x: tensor<?xf32, "src">, %y: tensor<?xf32, "dst">) -> tensor<?xf32, "src"> {
  %0 = "gf.add"(%x, %y) : (tensor<?xf32, "src">, tensor<?xf32, "dst">) -> tensor<?xf32, "src">
  return %0 : tensor<?xf32, "src">
}

// -----
// RUN:
// ERROR: gf.exp: operands and result are all of one entity, or all of whole spaces
func.func @f(%x: tensor<?xf32, "src">) -> tensor<f32, "src"> {
  %0 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<f32, "src">
  return %0 : tensor<f32, "src">
}

// -----
// RUN:
// ERROR: gf.feature_sum: attribute 'axis' is of kind IntegerAttr, got "last"
func.func @f(%x: tensor<?x4xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.feature_sum"(%x) {axis = "last"} : (tensor<?x4xf32, "src">) -> tensor<?xf32, "src">
  return %0 : tensor<?xf32, "src">
}

// -----
// RUN:
// ERROR: gf.feature_sum: attribute 'axis' is missing
func.func @f(%x: tensor<?x4xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.feature_sum"(%x) : (tensor<?x4xf32, "src">) -> tensor<?xf32, "src">
  return %0 : tensor<?xf32, "src">
}

// -----
// RUN:
// ERROR: gf_iter.read: only a phase reads at 'other'
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?xf32, "src">) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
    %v = "gf_iter.read"(%a) {at = "other"} : (tensor<?xf32, "src">) -> tensor<f32, "src">
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_iter.read: expected a place that holds tensor<?xf32, "src">, of row (dst), other (src), edge (edges); got 'row'
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?xf32, "src">) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
    %v = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "src">) -> tensor<f32, "src">
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_iter.result: expected a slot below 1, got 1
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  %w = "gf_iter.rows"() ({
    %a = "gf_iter.array"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
    %v = "gf_iter.read"(%a) {at = "row"} : (tensor<?xf32, "src">) -> tensor<f32, "src">
    "gf_iter.store"(%v) {slot = 0} : (tensor<f32, "src">) -> ()
  }) {space = "src"} : () -> !gf_iter.done
  %y = "gf_iter.result"(%w) {slot = 1} : (!gf_iter.done) -> tensor<?xf32, "src">
  return %y : tensor<?xf32, "src">
}

// -----
// RUN:
// ERROR: gf_iter.carry: a phase carries reductions and scans
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?xf32, @edges>) {
  %w = "gf_iter.walk"() ({
    %a = "gf_iter.array"(%m) : (tensor<?xf32, @edges>) -> tensor<?xf32, @edges>
    %p = "gf_iter.phase"() ({
      %v = "gf_iter.read"(%a) {at = "edge"} : (tensor<?xf32, @edges>) -> tensor<f32, @edges>
      "gf_iter.carry"(%v) {slot = 0} : (tensor<f32, @edges>) -> ()
    }) : () -> !gf_iter.done
  }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
  return
}

// -----
// RUN:
// ERROR: gf_kernel.launch: expected one gf_iter.walk or gf_iter.rows as its body, got gf.constant
func.func @f() {
  %k = "gf_kernel.launch"() ({
    %0 = "gf.constant"() {text = "0x1.0p+0"} : () -> tensor<f32>
  }) {edge_lanes = 0, few = 0, lanes = "features", joins_next = false, prefetch = 0, whole = 0, window = 0} : () -> !gf_iter.done
  return
}
