// Adding zero, multiplying by one and negating twice vanish; -0.0 is a zero too, 0 * x is not one.
// RUN: gf-fold
// CHECK: func.func @f([[X:%\w+]]: tensor<?x4xf32, "src">
// CHECK-NEXT: [[ZERO:%\w+]] = "gf.constant"
// CHECK-NEXT: [[KEPT:%\w+]] = "gf.mul"([[X]], [[ZERO]])
// CHECK-NEXT: return [[X]], [[X]], [[KEPT]]
func.func @f(%x: tensor<?x4xf32, "src">) -> (tensor<?x4xf32, "src">, tensor<?x4xf32, "src">, tensor<?x4xf32, "src">) {
  %one = "gf.constant"() {text = "0x1.0p+0"} : () -> tensor<?x4xf32, "src">
  %zero = "gf.constant"() {text = "0x0.0p+0"} : () -> tensor<?x4xf32, "src">
  %minus = "gf.constant"() {text = "-0x0.0p+0"} : () -> tensor<?x4xf32, "src">
  %0 = "gf.mul"(%one, %x) : (tensor<?x4xf32, "src">, tensor<?x4xf32, "src">) -> tensor<?x4xf32, "src">
  %1 = "gf.add"(%0, %minus) : (tensor<?x4xf32, "src">, tensor<?x4xf32, "src">) -> tensor<?x4xf32, "src">
  %2 = "gf.neg"(%x) : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, "src">
  %3 = "gf.neg"(%2) : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, "src">
  %4 = "gf.mul"(%x, %zero) : (tensor<?x4xf32, "src">, tensor<?x4xf32, "src">) -> tensor<?x4xf32, "src">
  return %1, %3, %4 : tensor<?x4xf32, "src">, tensor<?x4xf32, "src">, tensor<?x4xf32, "src">
}

// -----
// Casting up and down again is no change; down and up again is one.
// RUN: gf-fold
// CHECK: func.func @f([[X:%\w+]]: tensor<?xf16, "src">
// CHECK: return [[X]]
// CHECK: func.func @g
// CHECK: "gf.cast"({{.*}}) {to = f16}
// CHECK-NEXT: [[Y:%\w+]] = "gf.cast"({{.*}}) {to = f32}
// CHECK-NEXT: return [[Y]]
func.func @f(%x: tensor<?xf16, "src">) -> tensor<?xf16, "src"> {
  %0 = "gf.cast"(%x) {to = f32} : (tensor<?xf16, "src">) -> tensor<?xf32, "src">
  %1 = "gf.cast"(%0) {to = f16} : (tensor<?xf32, "src">) -> tensor<?xf16, "src">
  return %1 : tensor<?xf16, "src">
}
func.func @g(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.cast"(%x) {to = f16} : (tensor<?xf32, "src">) -> tensor<?xf16, "src">
  %1 = "gf.cast"(%0) {to = f32} : (tensor<?xf16, "src">) -> tensor<?xf32, "src">
  return %1 : tensor<?xf32, "src">
}
