// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %c8_i64 = arith.constant 8 : i64
    %cst = arith.constant 1.84467441E+19 : f32
    %cst_0 = arith.constant 5.42101086E-20 : f32
    %c528482304_i32 = arith.constant 528482304 : i32
    %c1602224128_i32 = arith.constant 1602224128 : i32
    %cst_1 = arith.constant 1.000000e+00 : f32
    %cst_2 = arith.constant 5.000000e-01 : f32
    %cst_3 = arith.constant 0.16666539 : f32
    %cst_4 = arith.constant 0.041666396 : f32
    %cst_5 = arith.constant 0.00836699922 : f32
    %cst_6 = arith.constant 0.00139452517 : f32
    %c23_i32 = arith.constant 23 : i32
    %cst_7 = arith.constant 1.90465421E-9 : f32
    %cst_8 = arith.constant -0.693147182 : f32
    %cst_9 = arith.constant 0x4B400000 : f32
    %cst_10 = arith.constant 1.44269502 : f32
    %cst_11 = arith.constant 8.900000e+01 : f32
    %cst_12 = arith.constant -1.040000e+02 : f32
    %cst_13 = arith.constant dense<0.000000e+00> : vector<8xf32>
    %cst_14 = arith.constant 0x7F800000 : f32
    %cst_15 = arith.constant 2.000000e-01 : f32
    %cst_16 = arith.constant 0.000000e+00 : f32
    %cst_17 = arith.constant 0xFF800000 : f32
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %6 = llvm.load %5 : !llvm.ptr -> !llvm.ptr
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
        %18 = llvm.getelementptr %4[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %19 = llvm.load %18 : !llvm.ptr -> i64
        %20 = arith.addi %arg4, %c1_i64 : i64
        %21 = llvm.getelementptr %4[%20] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %22 = llvm.load %21 : !llvm.ptr -> i64
        %23 = llvm.getelementptr %8[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %24 = llvm.load %23 {alignment = 4 : i64} : !llvm.ptr -> f32
        %25 = scf.for %arg5 = %19 to %22 step %c1_i64 iter_args(%arg6 = %cst_17) -> (f32)  : i64 {
          %36 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %37 = llvm.load %36 : !llvm.ptr -> i32
          %38 = arith.extsi %37 : i32 to i64
          %39 = llvm.getelementptr %10[%38] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %40 = llvm.load %39 {alignment = 4 : i64} : !llvm.ptr -> f32
          %41 = arith.addf %40, %24 : f32
          %42 = arith.cmpf ogt, %41, %cst_16 : f32
          %43 = arith.mulf %41, %cst_15 : f32
          %44 = arith.select %42, %41, %43 : f32
          %45 = arith.maximumf %arg6, %44 : f32
          scf.yield %45 : f32
        }
        %26 = math.absf %25 : f32
        %27 = arith.cmpf oeq, %26, %cst_14 : f32
        %28 = arith.select %27, %cst_16, %25 : f32
        %29:2 = scf.for %arg5 = %19 to %22 step %c1_i64 iter_args(%arg6 = %cst_13, %arg7 = %cst_16) -> (vector<8xf32>, f32)  : i64 {
          %36 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %37 = llvm.load %36 : !llvm.ptr -> i32
          %38 = arith.extsi %37 : i32 to i64
          %39 = llvm.getelementptr %10[%38] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %40 = llvm.load %39 {alignment = 4 : i64} : !llvm.ptr -> f32
          %41 = arith.addf %40, %24 : f32
          %42 = arith.cmpf ogt, %41, %cst_16 : f32
          %43 = arith.mulf %41, %cst_15 : f32
          %44 = arith.select %42, %41, %43 : f32
          %45 = arith.subf %44, %28 : f32
          %46 = arith.cmpf ogt, %cst_12, %45 : f32
          %47 = arith.select %46, %cst_12, %45 : f32
          %48 = arith.cmpf olt, %cst_11, %47 : f32
          %49 = arith.select %48, %cst_11, %47 : f32
          %50 = math.fma %49, %cst_10, %cst_9 : f32
          %51 = arith.subf %50, %cst_9 : f32
          %52 = math.fma %51, %cst_8, %49 : f32
          %53 = math.fma %51, %cst_7, %52 : f32
          %54 = arith.bitcast %50 : f32 to i32
          %55 = arith.shli %54, %c23_i32 : i32
          %56 = arith.cmpf olt, %49, %cst_16 : f32
          %57 = math.fma %cst_6, %53, %cst_5 : f32
          %58 = math.fma %57, %53, %cst_4 : f32
          %59 = math.fma %58, %53, %cst_3 : f32
          %60 = math.fma %59, %53, %cst_2 : f32
          %61 = math.fma %60, %53, %cst_1 : f32
          %62 = math.fma %61, %53, %cst_1 : f32
          %63 = arith.select %56, %c1602224128_i32, %c528482304_i32 : i32
          %64 = arith.select %56, %cst_0, %cst : f32
          %65 = arith.addi %55, %63 : i32
          %66 = arith.bitcast %65 : i32 to f32
          %67 = arith.mulf %62, %66 : f32
          %68 = arith.mulf %67, %64 : f32
          %69 = vector.broadcast %68 : f32 to vector<8xf32>
          %70 = arith.muli %38, %c8_i64 : i64
          %71 = llvm.getelementptr %6[%70] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %72 = llvm.load %71 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %73 = arith.mulf %69, %72 : vector<8xf32>
          %74 = arith.addf %arg6, %73 : vector<8xf32>
          %75 = arith.addf %arg7, %68 : f32
          scf.yield %74, %75 : vector<8xf32>, f32
        }
        %30 = arith.cmpf ogt, %29#1, %cst_16 : f32
        %31 = arith.select %30, %29#1, %cst_1 : f32
        %32 = vector.broadcast %31 : f32 to vector<8xf32>
        %33 = arith.divf %29#0, %32 : vector<8xf32>
        %34 = arith.muli %arg4, %c8_i64 : i64
        %35 = llvm.getelementptr %1[%34] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %33, %35 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
      }
    }
    return
  }
}
