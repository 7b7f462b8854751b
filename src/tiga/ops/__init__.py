"""Ops: one class per op, registered by name. Importing the package registers them all."""

from tiga.ops import contract, feature, functions, leaf, lookup, message, pointwise, random, scan
from tiga.ops.base import REGISTRY, Op, Pointwise

__all__ = [
    "REGISTRY", "Op", "Pointwise", "contract", "feature", "functions", "leaf", "lookup",
    "message", "pointwise", "random", "scan",
]  # fmt: skip
