// A kernel holds 16384 elements of a sum of outer products: this one is made of two sums.
// RUN: gf-wide-sums
// CHECK: [[A:%\w+]] = "gf.outer_sum"({{.*}}) : (tensor<?x128xf32, @edges>, tensor<?x128xf32, @edges>) -> tensor<128x128xf32>
// CHECK: [[B:%\w+]] = "gf.outer_sum"({{.*}}) : (tensor<?x128xf32, @edges>, tensor<?x128xf32, @edges>) -> tensor<128x128xf32>
// CHECK: "gf.concat"
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x128xf32, @edges>, %y: tensor<?x256xf32, @edges>) -> tensor<128x256xf32> {
  %0 = "gf.outer_sum"(%x, %y) : (tensor<?x128xf32, @edges>, tensor<?x256xf32, @edges>) -> tensor<128x256xf32>
  return %0 : tensor<128x256xf32>
}
