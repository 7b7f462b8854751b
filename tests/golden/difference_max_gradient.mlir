// forward, saving for gradients
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %cst = arith.constant dense<0.000000e+00> : vector<8xf32>
    %cst_0 = arith.constant dense<0xFF800000> : vector<8xf32>
    %c8_i64 = arith.constant 8 : i64
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %6 = llvm.load %5 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
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
        %23 = arith.muli %arg4, %c8_i64 : i64
        %24 = llvm.getelementptr %8[%23] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %25 = llvm.load %24 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %26 = scf.for %arg5 = %19 to %22 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %37 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %38 = llvm.load %37 : !llvm.ptr -> i32
          %39 = arith.extsi %38 : i32 to i64
          %40 = arith.muli %39, %c8_i64 : i64
          %41 = llvm.getelementptr %10[%40] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %42 = llvm.load %41 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %43 = arith.subf %42, %25 : vector<8xf32>
          %44 = arith.cmpf ole, %43, %cst : vector<8xf32>
          %45 = arith.select %44, %cst, %43 : vector<8xi1>, vector<8xf32>
          %46 = arith.maximumf %arg6, %45 : vector<8xf32>
          scf.yield %46 : vector<8xf32>
        }
        %27 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %28 = llvm.load %27 : !llvm.ptr -> i64
        %29 = llvm.getelementptr %6[%20] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %30 = llvm.load %29 : !llvm.ptr -> i64
        %31 = arith.subi %30, %28 : i64
        %32 = arith.sitofp %31 : i64 to f32
        %33 = vector.broadcast %32 : f32 to vector<8xf32>
        %34 = arith.cmpf ogt, %33, %cst : vector<8xf32>
        %35 = arith.select %34, %26, %cst : vector<8xi1>, vector<8xf32>
        %36 = llvm.getelementptr %1[%23] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %35, %36 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
      }
    }
    return
  }
}
// gradient: forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %cst = arith.constant dense<1.000000e+00> : vector<8xf32>
    %cst_0 = arith.constant dense<0.000000e+00> : vector<8xf32>
    %c8_i64 = arith.constant 8 : i64
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[22] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[21] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %5 = llvm.load %4 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %10 = llvm.load %9 : !llvm.ptr -> !llvm.ptr
    %11 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %12 = llvm.load %11 : !llvm.ptr -> !llvm.ptr
    %13 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %14 = llvm.load %13 : !llvm.ptr -> !llvm.ptr
    %15 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %16 = llvm.load %15 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %17 = llvm.getelementptr %16[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %18 = llvm.load %17 : !llvm.ptr -> i64
      %19 = arith.addi %arg3, %c1_i64 : i64
      %20 = llvm.getelementptr %16[%19] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %21 = llvm.load %20 : !llvm.ptr -> i64
      scf.for %arg4 = %18 to %21 step %c1_i64  : i64 {
        %22 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %23 = llvm.load %22 : !llvm.ptr -> i64
        %24 = arith.addi %arg4, %c1_i64 : i64
        %25 = llvm.getelementptr %6[%24] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %26 = llvm.load %25 : !llvm.ptr -> i64
        %27 = arith.muli %arg4, %c8_i64 : i64
        %28 = llvm.getelementptr %10[%27] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %29 = llvm.load %28 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %30 = llvm.getelementptr %12[%27] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %31 = llvm.load %30 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %32 = scf.for %arg5 = %23 to %26 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %41 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %42 = llvm.load %41 : !llvm.ptr -> i32
          %43 = arith.extsi %42 : i32 to i64
          %44 = arith.muli %43, %c8_i64 : i64
          %45 = llvm.getelementptr %14[%44] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %46 = llvm.load %45 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %47 = arith.subf %46, %31 : vector<8xf32>
          %48 = arith.cmpf ole, %47, %cst_0 : vector<8xf32>
          %49 = arith.select %48, %cst_0, %47 : vector<8xi1>, vector<8xf32>
          %50 = arith.cmpf oge, %49, %29 : vector<8xf32>
          %51 = arith.uitofp %50 : vector<8xi1> to vector<8xf32>
          %52 = arith.addf %arg6, %51 : vector<8xf32>
          scf.yield %52 : vector<8xf32>
        }
        %33 = llvm.getelementptr %8[%27] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %34 = llvm.load %33 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %35 = arith.maximumf %32, %cst : vector<8xf32>
        %36 = arith.divf %34, %35 : vector<8xf32>
        %37 = scf.for %arg5 = %23 to %26 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %41 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %42 = llvm.load %41 : !llvm.ptr -> i32
          %43 = arith.extsi %42 : i32 to i64
          %44 = arith.muli %43, %c8_i64 : i64
          %45 = llvm.getelementptr %14[%44] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %46 = llvm.load %45 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %47 = arith.subf %46, %31 : vector<8xf32>
          %48 = arith.cmpf ole, %47, %cst_0 : vector<8xf32>
          %49 = arith.select %48, %cst_0, %47 : vector<8xi1>, vector<8xf32>
          %50 = arith.cmpf oge, %49, %29 : vector<8xf32>
          %51 = arith.select %50, %36, %cst_0 : vector<8xi1>, vector<8xf32>
          %52 = arith.select %48, %cst_0, %51 : vector<8xi1>, vector<8xf32>
          %53 = arith.addf %arg6, %52 : vector<8xf32>
          scf.yield %53 : vector<8xf32>
        }
        %38 = arith.negf %37 : vector<8xf32>
        %39 = llvm.getelementptr %3[%27] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %38, %39 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
        %40 = llvm.getelementptr %1[%27] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %36, %40 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
      }
    }
    return
  }
}
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %cst = arith.constant dense<0.000000e+00> : vector<8xf32>
    %c8_i64 = arith.constant 8 : i64
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[21] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %6 = llvm.load %5 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %10 = llvm.load %9 : !llvm.ptr -> !llvm.ptr
    %11 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %12 = llvm.load %11 : !llvm.ptr -> !llvm.ptr
    %13 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %14 = llvm.load %13 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %15 = llvm.getelementptr %14[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %16 = llvm.load %15 : !llvm.ptr -> i64
      %17 = arith.addi %arg3, %c1_i64 : i64
      %18 = llvm.getelementptr %14[%17] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %19 = llvm.load %18 : !llvm.ptr -> i64
      scf.for %arg4 = %16 to %19 step %c1_i64  : i64 {
        %20 = llvm.getelementptr %4[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %21 = llvm.load %20 : !llvm.ptr -> i64
        %22 = arith.addi %arg4, %c1_i64 : i64
        %23 = llvm.getelementptr %4[%22] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %24 = llvm.load %23 : !llvm.ptr -> i64
        %25 = arith.muli %arg4, %c8_i64 : i64
        %26 = llvm.getelementptr %12[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %27 = llvm.load %26 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %28 = scf.for %arg5 = %21 to %24 step %c1_i64 iter_args(%arg6 = %cst) -> (vector<8xf32>)  : i64 {
          %30 = llvm.getelementptr %3[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %31 = llvm.load %30 : !llvm.ptr -> i32
          %32 = arith.extsi %31 : i32 to i64
          %33 = arith.muli %32, %c8_i64 : i64
          %34 = llvm.getelementptr %10[%33] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %35 = llvm.load %34 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %36 = arith.subf %27, %35 : vector<8xf32>
          %37 = arith.cmpf ole, %36, %cst : vector<8xf32>
          %38 = arith.select %37, %cst, %36 : vector<8xi1>, vector<8xf32>
          %39 = llvm.getelementptr %8[%33] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %40 = llvm.load %39 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %41 = arith.cmpf oge, %38, %40 : vector<8xf32>
          %42 = llvm.getelementptr %6[%33] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %43 = llvm.load %42 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %44 = arith.select %41, %43, %cst : vector<8xi1>, vector<8xf32>
          %45 = arith.select %37, %cst, %44 : vector<8xi1>, vector<8xf32>
          %46 = arith.addf %arg6, %45 : vector<8xf32>
          scf.yield %46 : vector<8xf32>
        }
        %29 = llvm.getelementptr %1[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %28, %29 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
      }
    }
    return
  }
}
