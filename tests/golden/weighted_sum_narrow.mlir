// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<4xf32>
    %1 = ub.poison : vector<8xf32>
    %2 = ub.poison : vector<16xf32>
    %cst = arith.constant dense<true> : vector<16xi1>
    %cst_0 = arith.constant dense<0.000000e+00> : vector<16xf32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %c-16_i64 = arith.constant -16 : i64
    %c16_i64 = arith.constant 16 : i64
    %c1_i64 = arith.constant 1 : i64
    %3 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %4 = llvm.load %3 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %6 = llvm.load %5 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %8 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %9 = llvm.load %8 : !llvm.ptr -> !llvm.ptr
    %10 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %11 = llvm.load %10 : !llvm.ptr -> !llvm.ptr
    %12 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %13 = llvm.load %12 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %14 = llvm.getelementptr %13[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %15 = llvm.load %14 : !llvm.ptr -> i64
      %16 = arith.addi %arg3, %c1_i64 : i64
      %17 = llvm.getelementptr %13[%16] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %18 = llvm.load %17 : !llvm.ptr -> i64
      scf.for %arg4 = %15 to %18 step %c1_i64  : i64 {
        %19 = llvm.getelementptr %7[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %20 = llvm.load %19 : !llvm.ptr -> i64
        %21 = arith.addi %arg4, %c1_i64 : i64
        %22 = llvm.getelementptr %7[%21] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %23 = llvm.load %22 : !llvm.ptr -> i64
        %24 = arith.subi %23, %20 : i64
        %25 = arith.andi %24, %c-16_i64 : i64
        %26 = arith.addi %20, %25 : i64
        %27 = arith.cmpi slt, %20, %26 : i64
        %28 = scf.if %27 -> (f32) {
          %31 = scf.for %arg5 = %20 to %26 step %c16_i64 iter_args(%arg6 = %cst_0) -> (vector<16xf32>)  : i64 {
            %44 = llvm.getelementptr %6[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %45 = llvm.load %44 {alignment = 4 : i64} : !llvm.ptr -> vector<16xi32>
            %46 = llvm.getelementptr %11[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, f32
            %47 = llvm.load %46 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %48 = llvm.getelementptr %9[%45, 0] : (!llvm.ptr, vector<16xi32>) -> vector<16x!llvm.ptr>, !llvm.array<1 x f32>
            %49 = llvm.intr.masked.gather %48, %cst, %cst_0 {alignment = 4 : i32} : (vector<16x!llvm.ptr>, vector<16xi1>, vector<16xf32>) -> vector<16xf32>
            %50 = arith.mulf %47, %49 : vector<16xf32>
            %51 = arith.addf %arg6, %50 : vector<16xf32>
            scf.yield %51 : vector<16xf32>
          }
          %32 = vector.shuffle %31, %2 [0, 1, 2, 3, 4, 5, 6, 7] : vector<16xf32>, vector<16xf32>
          %33 = vector.shuffle %31, %2 [8, 9, 10, 11, 12, 13, 14, 15] : vector<16xf32>, vector<16xf32>
          %34 = arith.addf %32, %33 : vector<8xf32>
          %35 = vector.shuffle %34, %1 [0, 1, 2, 3] : vector<8xf32>, vector<8xf32>
          %36 = vector.shuffle %34, %1 [4, 5, 6, 7] : vector<8xf32>, vector<8xf32>
          %37 = arith.addf %35, %36 : vector<4xf32>
          %38 = vector.shuffle %37, %0 [0, 1] : vector<4xf32>, vector<4xf32>
          %39 = vector.shuffle %37, %0 [2, 3] : vector<4xf32>, vector<4xf32>
          %40 = arith.addf %38, %39 : vector<2xf32>
          %41 = vector.extract %40[0] : f32 from vector<2xf32>
          %42 = vector.extract %40[1] : f32 from vector<2xf32>
          %43 = arith.addf %41, %42 : f32
          scf.yield %43 : f32
        } else {
          scf.yield %cst_1 : f32
        }
        %29 = scf.for %arg5 = %26 to %23 step %c1_i64 iter_args(%arg6 = %28) -> (f32)  : i64 {
          %31 = llvm.getelementptr %6[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %32 = llvm.load %31 : !llvm.ptr -> i32
          %33 = arith.extsi %32 : i32 to i64
          %34 = llvm.getelementptr %11[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %35 = llvm.load %34 {alignment = 4 : i64} : !llvm.ptr -> f32
          %36 = llvm.getelementptr %9[%33] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %37 = llvm.load %36 {alignment = 4 : i64} : !llvm.ptr -> f32
          %38 = arith.mulf %35, %37 : f32
          %39 = arith.addf %arg6, %38 : f32
          scf.yield %39 : f32
        }
        %30 = llvm.getelementptr %4[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %29, %30 {alignment = 4 : i64} : f32, !llvm.ptr
      }
    }
    return
  }
}
