// MLIR's own passes know that ops of ours are pure, and merge or drop them.
// RUN: cse
// CHECK: [[E:%\w+]] = "gf.exp"
// CHECK-NOT: gf.exp
// CHECK: "gf.add"([[E]], [[E]])
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %1 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %2 = "gf.add"(%0, %1) : (tensor<?xf32, "src">, tensor<?xf32, "src">) -> tensor<?xf32, "src">
  return %2 : tensor<?xf32, "src">
}

// -----
// Before and after ours.
// RUN: canonicalize,gf-fold,gf-form-rows,cse
// CHECK-NOT: gf.tanh
// CHECK: gf_iter.rows
// CHECK-NOT: gf.neg
// CHECK: gf.exp
// CHECK-NOT: gf.tanh
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.neg"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %1 = "gf.neg"(%0) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %2 = "gf.exp"(%1) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %3 = "gf.tanh"(%1) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  return %2 : tensor<?xf32, "src">
}

// -----
// A region of ours is isolated: nothing moves in or out of it.
// RUN: cse,canonicalize
// CHECK: "gf.tanh"
// CHECK: "gf.scan_after"
// CHECK-NEXT: ^bb0
// CHECK-NEXT: "gf.tanh"
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%s: tensor<f32>) -> (tensor<f32>, tensor<?xf32, "dst">) {
  %t = "gf.tanh"(%s) : (tensor<f32>) -> tensor<f32>
  %v = "gf.spread"(%t) {space = "dst"} : (tensor<f32>) -> tensor<?xf32, "dst">
  %0 = "gf.part"(%v) : (tensor<?xf32, "dst">) -> !gf.hidden
  %1 = "gf.scan_after"(%0) ({
  ^bb0(%c: tensor<f32>):
    %3 = "gf.tanh"(%c) : (tensor<f32>) -> tensor<f32>
    %4 = "gf.part"(%3) : (tensor<f32>) -> !gf.hidden
    "gf.yield"(%4) : (!gf.hidden) -> ()
  }, {
    "gf.yield"() : () -> ()
  }) {join = [], root = -1, read = array<i64>, relation = @edges, side = "dst", reverse = false, step = ["carry"]} : (!gf.hidden) -> tensor<?xf32, "dst">
  return %t, %1 : tensor<f32>, tensor<?xf32, "dst">
}

// -----
// RUN: convert-arith-to-llvm,convert-func-to-llvm
// CHECK: llvm.func @f
// CHECK-NEXT: llvm.add
func.func @f(%x: i64) -> i64 {
  %0 = arith.addi %x, %x : i64
  return %0 : i64
}

// -----
// RUN: gf-fold
// ERROR: expected a tensor of a type that values have, got i64
func.func @f(%x: i64) -> i64 {
  return %x : i64
}

// -----
// RUN: convert-func-to-llvm,gf-fold
// ERROR: expected functions and relations, got llvm.func
func.func @f(%x: i64) -> i64 {
  return %x : i64
}
