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
          %37 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %38 = llvm.load %37 : !llvm.ptr -> i32
          %39 = arith.extsi %38 : i32 to i64
          %40 = llvm.getelementptr %10[%39] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %41 = llvm.load %40 {alignment = 4 : i64} : !llvm.ptr -> f32
          %42 = arith.addf %41, %24 : f32
          %43 = arith.cmpf ogt, %42, %cst_16 : f32
          %44 = arith.mulf %42, %cst_15 : f32
          %45 = arith.select %43, %42, %44 : f32
          %46 = arith.maximumf %arg6, %45 : f32
          scf.yield %46 : f32
        }
        %26 = math.absf %25 : f32
        %27 = arith.cmpf oeq, %26, %cst_14 : f32
        %28 = arith.select %27, %cst_16, %25 : f32
        %29:2 = scf.for %arg5 = %19 to %22 step %c1_i64 iter_args(%arg6 = %cst_13, %arg7 = %cst_16) -> (vector<8xf32>, f32)  : i64 {
          %37 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %38 = llvm.load %37 : !llvm.ptr -> i32
          %39 = arith.extsi %38 : i32 to i64
          %40 = llvm.getelementptr %10[%39] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %41 = llvm.load %40 {alignment = 4 : i64} : !llvm.ptr -> f32
          %42 = arith.addf %41, %24 : f32
          %43 = arith.cmpf ogt, %42, %cst_16 : f32
          %44 = arith.mulf %42, %cst_15 : f32
          %45 = arith.select %43, %42, %44 : f32
          %46 = arith.subf %45, %28 : f32
          %47 = arith.cmpf ogt, %cst_12, %46 : f32
          %48 = arith.select %47, %cst_12, %46 : f32
          %49 = arith.cmpf olt, %cst_11, %48 : f32
          %50 = arith.select %49, %cst_11, %48 : f32
          %51 = math.fma %50, %cst_10, %cst_9 : f32
          %52 = arith.subf %51, %cst_9 : f32
          %53 = math.fma %52, %cst_8, %50 : f32
          %54 = math.fma %52, %cst_7, %53 : f32
          %55 = arith.bitcast %51 : f32 to i32
          %56 = arith.shli %55, %c23_i32 : i32
          %57 = arith.cmpf olt, %50, %cst_16 : f32
          %58 = math.fma %cst_6, %54, %cst_5 : f32
          %59 = math.fma %58, %54, %cst_4 : f32
          %60 = math.fma %59, %54, %cst_3 : f32
          %61 = math.fma %60, %54, %cst_2 : f32
          %62 = math.fma %61, %54, %cst_1 : f32
          %63 = math.fma %62, %54, %cst_1 : f32
          %64 = arith.select %57, %c1602224128_i32, %c528482304_i32 : i32
          %65 = arith.select %57, %cst_0, %cst : f32
          %66 = arith.addi %56, %64 : i32
          %67 = arith.bitcast %66 : i32 to f32
          %68 = arith.mulf %63, %67 : f32
          %69 = arith.mulf %68, %65 : f32
          %70 = vector.broadcast %69 : f32 to vector<8xf32>
          %71 = arith.muli %39, %c8_i64 : i64
          %72 = llvm.getelementptr %6[%71] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %73 = llvm.load %72 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %74 = arith.mulf %70, %73 : vector<8xf32>
          %75 = arith.addf %arg6, %74 : vector<8xf32>
          %76 = arith.addf %arg7, %69 : f32
          scf.yield %75, %76 : vector<8xf32>, f32
        }
        %30 = arith.cmpf ogt, %29#1, %cst_16 : f32
        %31 = arith.select %30, %29#1, %cst_1 : f32
        %32 = arith.divf %cst_1, %31 : f32
        %33 = vector.broadcast %32 : f32 to vector<8xf32>
        %34 = arith.mulf %29#0, %33 : vector<8xf32>
        %35 = arith.muli %arg4, %c8_i64 : i64
        %36 = llvm.getelementptr %1[%35] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %34, %36 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
      }
    }
    return
  }
}
