// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<1xf32>
    %cst = arith.constant dense<true> : vector<16xi1>
    %cst_0 = arith.constant dense<0.000000e+00> : vector<16xf32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %c-16_i64 = arith.constant -16 : i64
    %c16_i64 = arith.constant 16 : i64
    %c1_i64 = arith.constant 1 : i64
    %1 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %2 = llvm.load %1 : !llvm.ptr -> !llvm.ptr
    %3 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %4 = llvm.load %3 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %7 = llvm.load %6 : !llvm.ptr -> !llvm.ptr
    %8 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %9 = llvm.load %8 : !llvm.ptr -> !llvm.ptr
    %10 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %11 = llvm.load %10 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %12 = llvm.getelementptr %11[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %13 = llvm.load %12 : !llvm.ptr -> i64
      %14 = arith.addi %arg3, %c1_i64 : i64
      %15 = llvm.getelementptr %11[%14] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %16 = llvm.load %15 : !llvm.ptr -> i64
      scf.for %arg4 = %13 to %16 step %c1_i64  : i64 {
        %17 = llvm.getelementptr %5[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %18 = llvm.load %17 : !llvm.ptr -> i64
        %19 = arith.addi %arg4, %c1_i64 : i64
        %20 = llvm.getelementptr %5[%19] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %21 = llvm.load %20 : !llvm.ptr -> i64
        %22 = arith.subi %21, %18 : i64
        %23 = arith.andi %22, %c-16_i64 : i64
        %24 = arith.addi %18, %23 : i64
        %25 = arith.cmpi slt, %18, %24 : i64
        %26 = scf.if %25 -> (f32) {
          %29 = scf.for %arg5 = %18 to %24 step %c16_i64 iter_args(%arg6 = %cst_0) -> (vector<16xf32>)  : i64 {
            %42 = llvm.getelementptr %4[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %43 = llvm.load %42 {alignment = 4 : i64} : !llvm.ptr -> vector<16xi32>
            %44 = llvm.getelementptr %9[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, f32
            %45 = llvm.load %44 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %46 = llvm.getelementptr %7[%43, 0] : (!llvm.ptr, vector<16xi32>) -> vector<16x!llvm.ptr>, !llvm.array<1 x f32>
            %47 = llvm.intr.masked.gather %46, %cst, %cst_0 {alignment = 4 : i32} : (vector<16x!llvm.ptr>, vector<16xi1>, vector<16xf32>) -> vector<16xf32>
            %48 = arith.mulf %45, %47 : vector<16xf32>
            %49 = arith.addf %arg6, %48 : vector<16xf32>
            scf.yield %49 : vector<16xf32>
          }
          %30 = vector.shuffle %29, %0 [0, 1, 2, 3, 4, 5, 6, 7] : vector<16xf32>, vector<1xf32>
          %31 = vector.shuffle %29, %0 [8, 9, 10, 11, 12, 13, 14, 15] : vector<16xf32>, vector<1xf32>
          %32 = arith.addf %30, %31 : vector<8xf32>
          %33 = vector.shuffle %32, %0 [0, 1, 2, 3] : vector<8xf32>, vector<1xf32>
          %34 = vector.shuffle %32, %0 [4, 5, 6, 7] : vector<8xf32>, vector<1xf32>
          %35 = arith.addf %33, %34 : vector<4xf32>
          %36 = vector.shuffle %35, %0 [0, 1] : vector<4xf32>, vector<1xf32>
          %37 = vector.shuffle %35, %0 [2, 3] : vector<4xf32>, vector<1xf32>
          %38 = arith.addf %36, %37 : vector<2xf32>
          %39 = vector.extract %38[0] : f32 from vector<2xf32>
          %40 = vector.extract %38[1] : f32 from vector<2xf32>
          %41 = arith.addf %39, %40 : f32
          scf.yield %41 : f32
        } else {
          scf.yield %cst_1 : f32
        }
        %27 = scf.for %arg5 = %24 to %21 step %c1_i64 iter_args(%arg6 = %26) -> (f32)  : i64 {
          %29 = llvm.getelementptr %4[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %30 = llvm.load %29 : !llvm.ptr -> i32
          %31 = arith.extsi %30 : i32 to i64
          %32 = llvm.getelementptr %9[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %33 = llvm.load %32 {alignment = 4 : i64} : !llvm.ptr -> f32
          %34 = llvm.getelementptr %7[%31] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %35 = llvm.load %34 {alignment = 4 : i64} : !llvm.ptr -> f32
          %36 = arith.mulf %33, %35 : f32
          %37 = arith.addf %arg6, %36 : f32
          scf.yield %37 : f32
        }
        %28 = llvm.getelementptr %2[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %27, %28 {alignment = 4 : i64} : f32, !llvm.ptr
      }
    }
    return
  }
}
