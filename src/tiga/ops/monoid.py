"""The commutative monoids that rows reduce with: facts that derivatives and backends read."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiga.ops.arithmetic import Arithmetic, Value
from tiga.types import DType


@dataclass(frozen=True)
class Monoid:
    """`identity` and `combine` of a reduction. `selects` says that a result is one of the
    operands (so it is exact in any dtype); otherwise it accumulates in the compute dtype."""

    name: str
    identity_value: float
    combine: Callable[[Arithmetic, Value, Value], Value]
    ufunc: np.ufunc
    selects: bool

    def identity(self, dtype: DType) -> float | int:
        """The identity as a number of `dtype` (integers use the ends of their range)."""
        if np.isfinite(self.identity_value) or dtype.is_float:
            return self.identity_value
        limits = np.iinfo(dtype.numpy)
        return int(limits.max if self.identity_value > 0 else limits.min)


MONOIDS = {
    m.name: m
    for m in (
        Monoid("sum", 0.0, lambda b, x, y: b.add(x, y), np.add, False),
        Monoid("prod", 1.0, lambda b, x, y: b.mul(x, y), np.multiply, False),
        Monoid("max", float("-inf"), lambda b, x, y: b.maximum(x, y), np.maximum, True),
        Monoid("min", float("inf"), lambda b, x, y: b.minimum(x, y), np.minimum, True),
    )
}
