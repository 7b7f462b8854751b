// The product of the others: by division of the row's product where no message is zero.
// RUN: gf-expand
// CHECK-NOT: gf.exclusive_prod
// CHECK: "gf.reduce"({{.*}}) {kind = "sum", relation = @edges, side = "dst"}
// CHECK: "gf.reduce"({{.*}}) {kind = "prod", relation = @edges, side = "dst"}
// CHECK: "gf.div"
// CHECK-NOT: gf.exclusive_prod
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges> {
  %0 = "gf.exclusive_prod"(%m) {relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  return %0 : tensor<?x4xf32, @edges>
}
