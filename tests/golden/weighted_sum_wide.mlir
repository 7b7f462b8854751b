// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %c12_i64 = arith.constant 12 : i64
    %cst = arith.constant dense<0.000000e+00> : vector<16xf32>
    %c16_i64 = arith.constant 16 : i64
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[11] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> i64
    %4 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %5 = llvm.load %4 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %10 = llvm.load %9 : !llvm.ptr -> !llvm.ptr
    %11 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %12 = llvm.load %11 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %13 = llvm.getelementptr %12[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %14 = llvm.load %13 : !llvm.ptr -> i64
      %15 = arith.addi %arg3, %c1_i64 : i64
      %16 = llvm.getelementptr %12[%15] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %17 = llvm.load %16 : !llvm.ptr -> i64
      scf.for %arg4 = %14 to %17 step %c1_i64  : i64 {
        %18 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %19 = llvm.load %18 : !llvm.ptr -> i64
        %20 = arith.addi %arg4, %c1_i64 : i64
        %21 = llvm.getelementptr %6[%20] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %22 = llvm.load %21 : !llvm.ptr -> i64
        %23 = scf.for %arg5 = %19 to %22 step %c1_i64 iter_args(%arg6 = %cst) -> (vector<16xf32>)  : i64 {
          %26 = arith.subi %3, %c1_i64 : i64
          %27 = arith.addi %arg5, %c12_i64 : i64
          %28 = arith.minsi %27, %26 : i64
          %29 = llvm.getelementptr %5[%28] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %30 = llvm.load %29 : !llvm.ptr -> i32
          %31 = arith.extsi %30 : i32 to i64
          %32 = arith.muli %31, %c16_i64 : i64
          %33 = llvm.getelementptr %8[%32] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          "llvm.intr.prefetch"(%33) <{cache = 1 : i32, hint = 3 : i32, rw = 0 : i32}> : (!llvm.ptr) -> ()
          %34 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %35 = llvm.load %34 : !llvm.ptr -> i32
          %36 = arith.extsi %35 : i32 to i64
          %37 = llvm.getelementptr %10[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %38 = llvm.load %37 {alignment = 4 : i64} : !llvm.ptr -> f32
          %39 = vector.broadcast %38 : f32 to vector<16xf32>
          %40 = arith.muli %36, %c16_i64 : i64
          %41 = llvm.getelementptr %8[%40] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %42 = llvm.load %41 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
          %43 = arith.mulf %39, %42 : vector<16xf32>
          %44 = arith.addf %arg6, %43 : vector<16xf32>
          scf.yield %44 : vector<16xf32>
        }
        %24 = arith.muli %arg4, %c16_i64 : i64
        %25 = llvm.getelementptr %1[%24] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %23, %25 {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
      }
    }
    return
  }
}
