"""CPU kernels through MLIR and LLVM."""
