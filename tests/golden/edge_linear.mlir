// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<16xf32>
    %c1_i64 = arith.constant 1 : i64
    %c16_i64 = arith.constant 16 : i64
    %1 = llvm.getelementptr %arg0[18] : (!llvm.ptr) -> !llvm.ptr, i64
    %2 = llvm.load %1 : !llvm.ptr -> !llvm.ptr
    %3 = llvm.getelementptr %arg0[17] : (!llvm.ptr) -> !llvm.ptr, i64
    %4 = llvm.load %3 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.getelementptr %arg0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %6 = llvm.load %5 : !llvm.ptr -> !llvm.ptr
    scf.for %arg3 = %arg1 to %arg2 step %c1_i64  : i64 {
      %7 = llvm.getelementptr %6[%arg3] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %8 = llvm.load %7 : !llvm.ptr -> i64
      %9 = arith.addi %arg3, %c1_i64 : i64
      %10 = llvm.getelementptr %6[%9] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %11 = llvm.load %10 : !llvm.ptr -> i64
      scf.for %arg4 = %8 to %11 step %c1_i64  : i64 {
        %12 = arith.muli %arg4, %c16_i64 : i64
        %13 = llvm.getelementptr %4[%12] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %14 = llvm.load %13 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
        %15 = vector.shuffle %14, %0 [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15] : vector<16xf32>, vector<16xf32>
        %16 = llvm.getelementptr %2[%12] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %15, %16 {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
      }
    }
    return
  }
}
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<4xf32>
    %1 = ub.poison : vector<16xf32>
    %cst = arith.constant dense<0.000000e+00> : vector<4xf32>
    %c4_i64 = arith.constant 4 : i64
    %c1_i64 = arith.constant 1 : i64
    %2 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %3 = llvm.load %2 : !llvm.ptr -> !llvm.ptr
    %4 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %5 = llvm.load %4 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
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
        %20 = llvm.getelementptr %6[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %21 = llvm.load %20 : !llvm.ptr -> i64
        %22 = arith.addi %arg4, %c1_i64 : i64
        %23 = llvm.getelementptr %6[%22] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %24 = llvm.load %23 : !llvm.ptr -> i64
        %25 = arith.muli %arg4, %c4_i64 : i64
        %26 = llvm.getelementptr %10[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %27 = llvm.load %26 {alignment = 4 : i64} : !llvm.ptr -> vector<4xf32>
        %28 = scf.for %arg5 = %21 to %24 step %c1_i64 iter_args(%arg6 = %cst) -> (vector<4xf32>)  : i64 {
          %30 = llvm.getelementptr %5[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %31 = llvm.load %30 : !llvm.ptr -> i32
          %32 = arith.extsi %31 : i32 to i64
          %33 = arith.muli %32, %c4_i64 : i64
          %34 = llvm.getelementptr %12[%33] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %35 = llvm.load %34 {alignment = 4 : i64} : !llvm.ptr -> vector<4xf32>
          %36 = arith.subf %35, %27 : vector<4xf32>
          %37 = arith.cmpf ole, %36, %cst : vector<4xf32>
          %38 = arith.select %37, %cst, %36 : vector<4xi1>, vector<4xf32>
          %39 = llvm.load %8 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
          %40 = vector.shuffle %39, %1 [0, 4, 8, 12] : vector<16xf32>, vector<16xf32>
          %41 = arith.mulf %38, %40 : vector<4xf32>
          %42 = vector.shuffle %41, %0 [0, 1] : vector<4xf32>, vector<4xf32>
          %43 = vector.shuffle %41, %0 [2, 3] : vector<4xf32>, vector<4xf32>
          %44 = arith.addf %42, %43 : vector<2xf32>
          %45 = vector.extract %44[0] : f32 from vector<2xf32>
          %46 = vector.extract %44[1] : f32 from vector<2xf32>
          %47 = arith.addf %45, %46 : f32
          %48 = vector.shuffle %39, %1 [1, 5, 9, 13] : vector<16xf32>, vector<16xf32>
          %49 = arith.mulf %38, %48 : vector<4xf32>
          %50 = vector.shuffle %49, %0 [0, 1] : vector<4xf32>, vector<4xf32>
          %51 = vector.shuffle %49, %0 [2, 3] : vector<4xf32>, vector<4xf32>
          %52 = arith.addf %50, %51 : vector<2xf32>
          %53 = vector.extract %52[0] : f32 from vector<2xf32>
          %54 = vector.extract %52[1] : f32 from vector<2xf32>
          %55 = arith.addf %53, %54 : f32
          %56 = vector.shuffle %39, %1 [2, 6, 10, 14] : vector<16xf32>, vector<16xf32>
          %57 = arith.mulf %38, %56 : vector<4xf32>
          %58 = vector.shuffle %57, %0 [0, 1] : vector<4xf32>, vector<4xf32>
          %59 = vector.shuffle %57, %0 [2, 3] : vector<4xf32>, vector<4xf32>
          %60 = arith.addf %58, %59 : vector<2xf32>
          %61 = vector.extract %60[0] : f32 from vector<2xf32>
          %62 = vector.extract %60[1] : f32 from vector<2xf32>
          %63 = arith.addf %61, %62 : f32
          %64 = vector.shuffle %39, %1 [3, 7, 11, 15] : vector<16xf32>, vector<16xf32>
          %65 = arith.mulf %38, %64 : vector<4xf32>
          %66 = vector.shuffle %65, %0 [0, 1] : vector<4xf32>, vector<4xf32>
          %67 = vector.shuffle %65, %0 [2, 3] : vector<4xf32>, vector<4xf32>
          %68 = arith.addf %66, %67 : vector<2xf32>
          %69 = vector.extract %68[0] : f32 from vector<2xf32>
          %70 = vector.extract %68[1] : f32 from vector<2xf32>
          %71 = arith.addf %69, %70 : f32
          %72 = vector.broadcast %47 : f32 to vector<1xf32>
          %73 = vector.broadcast %55 : f32 to vector<1xf32>
          %74 = vector.interleave %72, %73 : vector<1xf32> -> vector<2xf32>
          %75 = vector.broadcast %63 : f32 to vector<1xf32>
          %76 = vector.shuffle %74, %75 [0, 1, 2] : vector<2xf32>, vector<1xf32>
          %77 = vector.broadcast %71 : f32 to vector<1xf32>
          %78 = vector.shuffle %76, %77 [0, 1, 2, 3] : vector<3xf32>, vector<1xf32>
          %79 = arith.cmpf ole, %78, %cst : vector<4xf32>
          %80 = arith.select %79, %cst, %78 : vector<4xi1>, vector<4xf32>
          %81 = arith.addf %arg6, %80 : vector<4xf32>
          scf.yield %81 : vector<4xf32>
        }
        %29 = llvm.getelementptr %3[%25] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %28, %29 {alignment = 4 : i64} : vector<4xf32>, !llvm.ptr
      }
    }
    return
  }
}
