"""The commutative monoids that rows reduce with: facts that derivatives and backends read."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.arithmetic import Arithmetic, Value
from tiga.types import DType


@dataclass(frozen=True)
class Monoid:
    """`identity` and `combine` of a reduction: `op` is the pointwise op that combines. `selects`
    says that a result is one of the operands (so it is exact in any dtype); otherwise it
    accumulates in the compute dtype."""

    name: str
    op: str
    identity_value: float
    ufunc: np.ufunc
    selects: bool

    def combine(self, b: Arithmetic, x: Value, y: Value) -> Value:
        return getattr(b, self.op)(x, y)

    def identity(self, dtype: DType) -> float | int:
        """The identity as a number of `dtype` (integers use the ends of their range)."""
        if np.isfinite(self.identity_value) or dtype.is_float:
            return self.identity_value
        limits = np.iinfo(dtype.numpy)
        return int(limits.max if self.identity_value > 0 else limits.min)


MONOIDS = {
    m.name: m
    for m in (
        Monoid("sum", "add", 0.0, np.add, selects=False),
        Monoid("prod", "mul", 1.0, np.multiply, selects=False),
        Monoid("max", "maximum", float("-inf"), np.maximum, selects=True),
        Monoid("min", "minimum", float("inf"), np.minimum, selects=True),
    )
}
"""By the kind of a reduction over edges."""

COMBINED_BY = {m.op: m for m in MONOIDS.values()}
"""By what combines: as reductions along axes name them."""
