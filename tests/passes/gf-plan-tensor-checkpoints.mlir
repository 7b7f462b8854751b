// Without a bound every candidate is saved.
// RUN: gf-plan-tensor-checkpoints
// CHECK: [[Y:%\w+]] = "gf_tensor.tanh"
// CHECK: [[Z:%\w+]] = "gf_tensor.exp"
// CHECK: "gf_tensor.checkpoint"([[Z]])
// CHECK: "gf_tensor.checkpoint"([[Y]])
// CHECK-NOT: candidate
func.func @f(%x: tensor<4xf32>, %ct: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "gf_tensor.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "gf_tensor.mul"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "gf_tensor.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "gf_tensor.checkpoint_candidate"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "gf_tensor.checkpoint_candidate"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "gf_tensor.mul"(%ct, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "gf_tensor.mul"(%ct, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %5, %6 : tensor<4xf32>, tensor<4xf32>
}

// -----
// Room for one: the value that more has to be computed again without.
// RUN: gf-plan-tensor-checkpoints{budget=16}
// CHECK: [[Y:%\w+]] = "gf_tensor.tanh"
// CHECK: [[SAVED:%\w+]] = "gf_tensor.checkpoint"
// CHECK-NOT: gf_tensor.checkpoint
func.func @f(%x: tensor<4xf32>, %ct: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "gf_tensor.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "gf_tensor.mul"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "gf_tensor.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "gf_tensor.checkpoint_candidate"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "gf_tensor.checkpoint_candidate"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "gf_tensor.mul"(%ct, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "gf_tensor.mul"(%ct, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %5, %6 : tensor<4xf32>, tensor<4xf32>
}

// -----
// Room for none.
// RUN: gf-plan-tensor-checkpoints{budget=0}
// CHECK: "gf_tensor.exp"
// CHECK-NOT: gf_tensor.checkpoint
func.func @f(%x: tensor<4xf32>, %ct: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "gf_tensor.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "gf_tensor.mul"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "gf_tensor.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "gf_tensor.checkpoint_candidate"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "gf_tensor.checkpoint_candidate"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "gf_tensor.mul"(%ct, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "gf_tensor.mul"(%ct, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %5, %6 : tensor<4xf32>, tensor<4xf32>
}

// -----
// Room outside of memory.
// RUN: gf-plan-tensor-checkpoints{budget=0 spill=16}
// CHECK: "gf_tensor.checkpoint_spill"
// CHECK-NOT: gf_tensor.checkpoint
func.func @f(%x: tensor<4xf32>, %ct: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "gf_tensor.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "gf_tensor.mul"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "gf_tensor.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "gf_tensor.checkpoint_candidate"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "gf_tensor.checkpoint_candidate"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "gf_tensor.mul"(%ct, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "gf_tensor.mul"(%ct, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %5, %6 : tensor<4xf32>, tensor<4xf32>
}
