"""Ops: one class per op, registered by name. Importing the package registers them all."""

from tiga.ops import (
    bits,
    contract,
    extremum,
    feature,
    functions,
    leaf,
    lookup,
    message,
    moments,
    pointwise,
    random,
    scan,
)
from tiga.ops.base import REGISTRY, Op, Pointwise

__all__ = [
    "REGISTRY", "Op", "Pointwise", "bits", "contract", "extremum", "feature", "functions", "leaf",
    "lookup", "message", "moments", "pointwise", "random", "scan",
]  # fmt: skip
