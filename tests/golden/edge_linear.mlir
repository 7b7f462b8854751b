// forward
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<1xf32>
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
        %15 = vector.shuffle %14, %0 [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15] : vector<16xf32>, vector<1xf32>
        %16 = llvm.getelementptr %2[%12] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %15, %16 {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
      }
    }
    return
  }
}
module {
  func.func @step_rows(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64) {
    %0 = ub.poison : vector<1xf32>
    %cst = arith.constant dense<0.000000e+00> : vector<4xf32>
    %c4_i64 = arith.constant 4 : i64
    %c1_i64 = arith.constant 1 : i64
    %1 = llvm.getelementptr %arg0[20] : (!llvm.ptr) -> !llvm.ptr, i64
    %2 = llvm.load %1 : !llvm.ptr -> !llvm.ptr
    %3 = llvm.getelementptr %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %4 = llvm.load %3 : !llvm.ptr -> !llvm.ptr
    %5 = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
    %6 = llvm.getelementptr %arg0[19] : (!llvm.ptr) -> !llvm.ptr, i64
    %7 = llvm.load %6 : !llvm.ptr -> !llvm.ptr
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
        %19 = llvm.getelementptr %5[%arg4] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %20 = llvm.load %19 : !llvm.ptr -> i64
        %21 = arith.addi %arg4, %c1_i64 : i64
        %22 = llvm.getelementptr %5[%21] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %23 = llvm.load %22 : !llvm.ptr -> i64
        %24 = arith.muli %arg4, %c4_i64 : i64
        %25 = llvm.getelementptr %9[%24] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %26 = llvm.load %25 {alignment = 4 : i64} : !llvm.ptr -> vector<4xf32>
        %27 = scf.for %arg5 = %20 to %23 step %c1_i64 iter_args(%arg6 = %cst) -> (vector<4xf32>)  : i64 {
          %29 = llvm.getelementptr %4[%arg5] : (!llvm.ptr, i64) -> !llvm.ptr, i32
          %30 = llvm.load %29 : !llvm.ptr -> i32
          %31 = arith.extsi %30 : i32 to i64
          %32 = arith.muli %31, %c4_i64 : i64
          %33 = llvm.getelementptr %11[%32] : (!llvm.ptr, i64) -> !llvm.ptr, f32
          %34 = llvm.load %33 {alignment = 4 : i64} : !llvm.ptr -> vector<4xf32>
          %35 = arith.subf %34, %26 : vector<4xf32>
          %36 = arith.cmpf ole, %35, %cst : vector<4xf32>
          %37 = arith.select %36, %cst, %35 : vector<4xi1>, vector<4xf32>
          %38 = llvm.load %7 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
          %39 = vector.shuffle %38, %0 [0, 4, 8, 12] : vector<16xf32>, vector<1xf32>
          %40 = arith.mulf %37, %39 : vector<4xf32>
          %41 = vector.shuffle %40, %0 [0, 1] : vector<4xf32>, vector<1xf32>
          %42 = vector.shuffle %40, %0 [2, 3] : vector<4xf32>, vector<1xf32>
          %43 = arith.addf %41, %42 : vector<2xf32>
          %44 = vector.extract %43[0] : f32 from vector<2xf32>
          %45 = vector.extract %43[1] : f32 from vector<2xf32>
          %46 = arith.addf %44, %45 : f32
          %47 = vector.shuffle %38, %0 [1, 5, 9, 13] : vector<16xf32>, vector<1xf32>
          %48 = arith.mulf %37, %47 : vector<4xf32>
          %49 = vector.shuffle %48, %0 [0, 1] : vector<4xf32>, vector<1xf32>
          %50 = vector.shuffle %48, %0 [2, 3] : vector<4xf32>, vector<1xf32>
          %51 = arith.addf %49, %50 : vector<2xf32>
          %52 = vector.extract %51[0] : f32 from vector<2xf32>
          %53 = vector.extract %51[1] : f32 from vector<2xf32>
          %54 = arith.addf %52, %53 : f32
          %55 = vector.shuffle %38, %0 [2, 6, 10, 14] : vector<16xf32>, vector<1xf32>
          %56 = arith.mulf %37, %55 : vector<4xf32>
          %57 = vector.shuffle %56, %0 [0, 1] : vector<4xf32>, vector<1xf32>
          %58 = vector.shuffle %56, %0 [2, 3] : vector<4xf32>, vector<1xf32>
          %59 = arith.addf %57, %58 : vector<2xf32>
          %60 = vector.extract %59[0] : f32 from vector<2xf32>
          %61 = vector.extract %59[1] : f32 from vector<2xf32>
          %62 = arith.addf %60, %61 : f32
          %63 = vector.shuffle %38, %0 [3, 7, 11, 15] : vector<16xf32>, vector<1xf32>
          %64 = arith.mulf %37, %63 : vector<4xf32>
          %65 = vector.shuffle %64, %0 [0, 1] : vector<4xf32>, vector<1xf32>
          %66 = vector.shuffle %64, %0 [2, 3] : vector<4xf32>, vector<1xf32>
          %67 = arith.addf %65, %66 : vector<2xf32>
          %68 = vector.extract %67[0] : f32 from vector<2xf32>
          %69 = vector.extract %67[1] : f32 from vector<2xf32>
          %70 = arith.addf %68, %69 : f32
          %71 = vector.broadcast %46 : f32 to vector<1xf32>
          %72 = vector.broadcast %54 : f32 to vector<1xf32>
          %73 = vector.interleave %71, %72 : vector<1xf32> -> vector<2xf32>
          %74 = vector.broadcast %62 : f32 to vector<1xf32>
          %75 = vector.shuffle %73, %74 [0, 1, 2] : vector<2xf32>, vector<1xf32>
          %76 = vector.broadcast %70 : f32 to vector<1xf32>
          %77 = vector.shuffle %75, %76 [0, 1, 2, 3] : vector<3xf32>, vector<1xf32>
          %78 = arith.cmpf ole, %77, %cst : vector<4xf32>
          %79 = arith.select %78, %cst, %77 : vector<4xi1>, vector<4xf32>
          %80 = arith.addf %arg6, %79 : vector<4xf32>
          scf.yield %80 : vector<4xf32>
        }
        %28 = llvm.getelementptr %2[%24] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        llvm.store %27, %28 {alignment = 4 : i64} : vector<4xf32>, !llvm.ptr
      }
    }
    return
  }
}
