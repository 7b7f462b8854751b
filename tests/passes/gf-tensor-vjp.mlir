// A gradient request becomes the gradient's own ops.
// RUN: gf-tensor-vjp
// CHECK: func.func @gradient([[X:%\w+]]: tensor<4xf32> {gf.label = "x"}, [[CT:%\w+]]: tensor<4xf32>
// CHECK: [[Y:%\w+]] = "gf_tensor.tanh"([[X]])
// CHECK: [[SQUARE:%\w+]] = "gf_tensor.mul"([[Y]], [[Y]])
// CHECK: [[SLOPE:%\w+]] = "gf_tensor.sub"({{.*}}, [[SQUARE]])
// CHECK: "gf_tensor.mul"([[CT]], [[SLOPE]])
// CHECK-NOT: gf_tensor.grad
func.func @gradient(%x: tensor<4xf32> {gf.label = "x"}, %ct: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "gf_tensor.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "gf_tensor.grad"(%0, %ct, %x) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----
// Of complex values: the conjugate of the other factor.
// RUN: gf-tensor-vjp
// CHECK: func.func @f([[X:%\w+]]: {{.*}}, [[W:%\w+]]: {{.*}}, [[CT:%\w+]]:
// CHECK: "gf_tensor.conj"([[CT]])
// CHECK: "gf_tensor.mul"({{.*}}, [[W]])
// CHECK: "gf_tensor.conj"
func.func @f(%x: tensor<4xcomplex<f32>>, %w: tensor<4xcomplex<f32>>, %ct: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = "gf_tensor.mul"(%x, %w) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  %1 = "gf_tensor.grad"(%0, %ct, %x) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  return %1 : tensor<4xcomplex<f32>>
}

// -----
// RUN: gf-tensor-vjp
// ERROR: does not depend on the input
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %ct: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "gf_tensor.grad"(%x, %ct, %y) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
