// The adjoint of a gather is a sum over the transpose; that of a sum is a gather.
// RUN: gf-vjp
// CHECK: func.func @f({{.*}} {gf.label = "x"}, {{.*}} {gf.label = "w"}, [[CT:%\w+]]: tensor<?x4xf32, "dst"> {gf.label = "cotangent0"}) -> (tensor<?x4xf32, "src">, tensor<?xf32, @edges>)
// CHECK: "gf.gather"([[CT]]) {relation = @edges, side = "dst"}
// CHECK: [[DX:%\w+]] = "gf.reduce"({{.*}}) {kind = "sum", relation = @edges, side = "src"}
// CHECK: [[DW:%\w+]] = "gf.feature_sum"
// CHECK: return [[DX]], [[DW]]
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%x: tensor<?x4xf32, "src"> {gf.label = "x"}, %w: tensor<?xf32, @edges> {gf.label = "w"}) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4xf32, "src">) -> tensor<?x4xf32, @edges>
  %1 = "gf.broadcast"(%w) {to = array<i64: 4>} : (tensor<?xf32, @edges>) -> tensor<?x4xf32, @edges>
  %2 = "gf.mul"(%0, %1) : (tensor<?x4xf32, @edges>, tensor<?x4xf32, @edges>) -> tensor<?x4xf32, @edges>
  %3 = "gf.reduce"(%2) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %3 : tensor<?x4xf32, "dst">
}

// -----
// Of the wanted inputs only; what it does not need is no argument.
// RUN: gf-vjp{wanted=arg0}
// CHECK: func.func @f([[CT:%\w+]]: tensor<?x4xf32, "dst"> {gf.label = "cotangent0"}) -> tensor<?x4xf32, @edges>
// CHECK-NEXT: "gf.gather"([[CT]])
// CHECK-NEXT: return
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @f(%m: tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst"> {
  %0 = "gf.reduce"(%m) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4xf32, @edges>) -> tensor<?x4xf32, "dst">
  return %0 : tensor<?x4xf32, "dst">
}

// -----
// RUN: gf-vjp{wanted=q}
// ERROR: @f: pass gf-vjp: expected inputs of x; got 'q'
func.func @f(%x: tensor<?xf32, "src"> {gf.label = "x"}) -> tensor<?xf32, "src"> {
  return %x : tensor<?xf32, "src">
}
