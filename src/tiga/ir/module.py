"""Modules under construction."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_mlir import ir


@contextmanager
def new_module(context: ir.Context) -> Iterator[ir.Module]:
    """An empty module of a context, at whose end operations are created meanwhile.

    Example:
        >>> from torch_mlir.dialects import arith
        >>> with new_module(ir.Context()) as module:
        ...     one = arith.constant(ir.F32Type.get(), 1.0)
        >>> "arith.constant 1.0" in str(module)
        True
    """
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module
