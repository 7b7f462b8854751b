// forward, saving for gradients
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %cst = arith.constant dense<0.000000e+00> : vector<8xf32>
    %cst_0 = arith.constant dense<0xFF800000> : vector<8xf32>
    %c8_i64 = arith.constant 8 : i64
    %c1_i64 = arith.constant 1 : i64
    %0 = llvm.getelementptr %arg0[21] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %5 = llvm.load %4 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %10 = llvm.load %9 : !llvm.ptr -> !llvm.ptr
    %11 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
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
        %20 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %21 = llvm.load %20 : !llvm.ptr -> i64
        %22 = arith.addi %arg4, %c1_i64 : i64
        %23 = llvm.getelementptr %6[%22] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %24 = llvm.load %23 : !llvm.ptr -> i64
        %25 = arith.muli %arg4, %c8_i64 : i64
        %26 = llvm.getelementptr %10[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %27 = llvm.load %26 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %28 = scf.for %arg5 = %21 to %24 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %40 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %41 = llvm.load %40 : !llvm.ptr -> i32
          %42 = arith.extsi %41 : i32 to i64
          %43 = arith.muli %42, %c8_i64 : i64
          %44 = llvm.getelementptr %12[%43] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %45 = llvm.load %44 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %46 = arith.subf %45, %27 : vector<8xf32>
          %47 = arith.cmpf ole, %46, %cst : vector<8xf32>
          %48 = arith.select %47, %cst, %46 : vector<8xi1>, vector<8xf32>
          %49 = arith.maximumf %arg6, %48 : vector<8xf32>
          scf.yield %49 : vector<8xf32>
        }
        %29 = llvm.getelementptr %8[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %30 = llvm.load %29 : !llvm.ptr -> i64
        %31 = llvm.getelementptr %8[%22] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %32 = llvm.load %31 : !llvm.ptr -> i64
        %33 = arith.subi %32, %30 : i64
        %34 = arith.sitofp %33 : i64 to f32
        %35 = vector.broadcast %34 : f32 to vector<8xf32>
        %36 = arith.cmpf ogt, %35, %cst : vector<8xf32>
        %37 = arith.select %36, %28, %cst : vector<8xi1>, vector<8xf32>
        %38 = llvm.getelementptr %3[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %37, %38 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
        %39 = llvm.getelementptr %1[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %28, %39 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
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
    %0 = llvm.getelementptr %arg0[23] : (!llvm.ptr) -> !llvm.ptr, i64
    %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %arg0[22] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %5 = llvm.load %4 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %7 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %8 = llvm.load %7 : !llvm.ptr -> !llvm.ptr
    %9 = llvm.getelementptr %arg0[21] : (!llvm.ptr) -> !llvm.ptr, i64
    %10 = llvm.load %9 : !llvm.ptr -> !llvm.ptr
    %11 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %12 = llvm.load %11 : !llvm.ptr -> !llvm.ptr
    %13 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %14 = llvm.load %13 : !llvm.ptr -> !llvm.ptr
    %15 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %16 = llvm.load %15 : !llvm.ptr -> !llvm.ptr
    %17 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %18 = llvm.load %17 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %19 = llvm.getelementptr %18[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %20 = llvm.load %19 : !llvm.ptr -> i64
      %21 = arith.addi %arg3, %c1_i64 : i64
      %22 = llvm.getelementptr %18[%21] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %23 = llvm.load %22 : !llvm.ptr -> i64
      scf.for %arg4 = %20 to %23 step %c1_i64  : i64 {
        %24 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %25 = llvm.load %24 : !llvm.ptr -> i64
        %26 = arith.addi %arg4, %c1_i64 : i64
        %27 = llvm.getelementptr %6[%26] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %28 = llvm.load %27 : !llvm.ptr -> i64
        %29 = arith.muli %arg4, %c8_i64 : i64
        %30 = llvm.getelementptr %12[%29] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %31 = llvm.load %30 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %32 = llvm.getelementptr %14[%29] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %33 = llvm.load %32 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %34 = scf.for %arg5 = %25 to %28 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %52 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %53 = llvm.load %52 : !llvm.ptr -> i32
          %54 = arith.extsi %53 : i32 to i64
          %55 = arith.muli %54, %c8_i64 : i64
          %56 = llvm.getelementptr %16[%55] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %57 = llvm.load %56 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %58 = arith.subf %57, %33 : vector<8xf32>
          %59 = arith.cmpf ole, %58, %cst_0 : vector<8xf32>
          %60 = arith.select %59, %cst_0, %58 : vector<8xi1>, vector<8xf32>
          %61 = arith.cmpf oeq, %60, %31 : vector<8xf32>
          %62 = arith.uitofp %61 : vector<8xi1> to vector<8xf32>
          %63 = arith.addf %arg6, %62 : vector<8xf32>
          scf.yield %63 : vector<8xf32>
        }
        %35 = llvm.getelementptr %8[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %36 = llvm.load %35 : !llvm.ptr -> i64
        %37 = llvm.getelementptr %8[%26] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %38 = llvm.load %37 : !llvm.ptr -> i64
        %39 = arith.subi %38, %36 : i64
        %40 = arith.sitofp %39 : i64 to f32
        %41 = vector.broadcast %40 : f32 to vector<8xf32>
        %42 = arith.cmpf ogt, %41, %cst_0 : vector<8xf32>
        %43 = llvm.getelementptr %10[%29] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %44 = llvm.load %43 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %45 = arith.select %42, %44, %cst_0 : vector<8xi1>, vector<8xf32>
        %46 = arith.maximumf %34, %cst : vector<8xf32>
        %47 = arith.divf %45, %46 : vector<8xf32>
        %48 = scf.for %arg5 = %25 to %28 step %c1_i64 iter_args(%arg6 = %cst_0) -> (vector<8xf32>)  : i64 {
          %52 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %53 = llvm.load %52 : !llvm.ptr -> i32
          %54 = arith.extsi %53 : i32 to i64
          %55 = arith.muli %54, %c8_i64 : i64
          %56 = llvm.getelementptr %16[%55] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %57 = llvm.load %56 {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
          %58 = arith.subf %57, %33 : vector<8xf32>
          %59 = arith.cmpf ole, %58, %cst_0 : vector<8xf32>
          %60 = arith.select %59, %cst_0, %58 : vector<8xi1>, vector<8xf32>
          %61 = arith.cmpf oeq, %60, %31 : vector<8xf32>
          %62 = arith.select %61, %47, %cst_0 : vector<8xi1>, vector<8xf32>
          %63 = arith.select %59, %cst_0, %62 : vector<8xi1>, vector<8xf32>
          %64 = arith.addf %arg6, %63 : vector<8xf32>
          scf.yield %64 : vector<8xf32>
        }
        %49 = arith.negf %48 : vector<8xf32>
        %50 = llvm.getelementptr %3[%29] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %49, %50 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
        %51 = llvm.getelementptr %1[%29] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %47, %51 {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
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
          %41 = arith.cmpf oeq, %38, %40 : vector<8xf32>
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
