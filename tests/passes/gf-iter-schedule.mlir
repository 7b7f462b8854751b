// Narrow values lie with edges across lanes, wide ones with features, in windows where they may.
// RUN: gf-form-rows,gf-iter-schedule
// CHECK: func.func @narrow
// CHECK: gf_kernel.launch
// CHECK: }) {edge_lanes = 16 : i64, few = 16 : i64, joins_next = false, lanes = "edges", {{.*}}} : () -> !gf_iter.done
// CHECK: func.func @wide
// CHECK: gf_kernel.launch
// CHECK: }) {{{.*}}lanes = "features", {{.*}}whole = 4096 : i64, window = 128 : i64} : () -> !gf_iter.done
"gf.relation"() {sym_name = "edges", src = "src", dst = "dst"} : () -> ()
func.func @narrow(%x: tensor<?xf32, "src">) -> tensor<?xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?xf32, "src">) -> tensor<?xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?xf32, @edges>) -> tensor<?xf32, "dst">
  return %1 : tensor<?xf32, "dst">
}
func.func @wide(%x: tensor<?x4096xf32, "src">) -> tensor<?x4096xf32, "dst"> {
  %0 = "gf.gather"(%x) {relation = @edges, side = "src"} : (tensor<?x4096xf32, "src">) -> tensor<?x4096xf32, @edges>
  %1 = "gf.reduce"(%0) {kind = "sum", relation = @edges, side = "dst"} : (tensor<?x4096xf32, @edges>) -> tensor<?x4096xf32, "dst">
  return %1 : tensor<?x4096xf32, "dst">
}

// -----
// RUN: gf-iter-schedule
// ERROR: @f: pass gf-iter-schedule: expected a Plan, got a Program
func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  return %x : tensor<?xf32, "src">
}
