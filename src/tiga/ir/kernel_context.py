"""Contexts of kernels for CPUs."""

from torch_mlir import ir

KERNEL_DIALECTS = ("func", "llvm", "arith", "math", "vector", "scf")
"""The dialects that kernels for CPUs are written in; passes load those that they lower to."""


def kernel_context() -> ir.Context:
    """A fresh context for one module of a CPU's kernels: making one with all dialects of MLIR would
    take longer than lowering most kernels does."""
    context = ir.Context(load_on_create_dialects=())
    for name in KERNEL_DIALECTS:
        context.get_dialect_descriptor(name)
    return context
