"""Every function of one float is as accurate over its whole range as docs/tensor.md says.

Which functions there are the registry says. What they are compared with is their own numpy meaning
in double precision, by which single precision is measured.
"""

import numpy as np
import pytest

from tiga.ops import REGISTRY, Pointwise, leaf, tensor_functions
from tiga.tensor_compiler import compile_tensors
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Type, bfloat16, float16, float32

NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if issubclass(op, Pointwise) and op.of_floats and getattr(op, "arity", 0) == 1
)
assert tensor_functions.Tan.name in NAMES

MOST = {float32: 4.0, float16: 0.51, bfloat16: 0.51}
"""Units in the last place. 16 bits are rounded once, from single precision."""

MANTISSA = {float32: 23, float16: 10, bfloat16: 7}
LEAST = {float32: 2.0**-126, float16: 2.0**-14, bfloat16: 2.0**-126}
"""The smallest normal number: what is below it may come out as 0."""


def numbers(dtype: DType) -> np.ndarray:
    """Every number of 16 bits; of 32 some of every sign and exponent, and many of usual size."""
    if dtype.itemsize == 2:
        return np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    bits = np.arange(0, 2**32, 2**32 // 60_001, dtype=np.uint64).astype(np.uint32)
    usual = [np.linspace(-a, a, 10_001, dtype=np.float32) for a in (1, 10, 100)]
    return np.concatenate([bits.view(np.float32), *usual])


def units(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Errors in units in the last place; what is not finite has to be the same."""
    size = np.maximum(np.abs(want), LEAST[dtype])
    error = np.abs(got - want) / 2.0 ** (np.floor(np.log2(size)) - MANTISSA[dtype])
    error[(np.abs(want) < LEAST[dtype]) & (got == 0)] = 0
    rounded = want.astype(dtype.numpy).astype(np.float64)
    special = ~(np.isfinite(rounded) & np.isfinite(got))
    error[special] = np.where(np.equal(got, rounded) | (np.isnan(got) & np.isnan(want)), 0, np.inf)[
        special
    ]
    return error


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_over_the_whole_range(name: str) -> None:
    op = REGISTRY[name]()
    arrays = {dtype: numbers(dtype) for dtype in MOST}
    inputs = [leaf.Input(str(d), Type(d, x.shape, GLOBAL))() for d, x in arrays.items()]
    executable = compile_tensors(Program(tuple(inputs), tuple(map(op, inputs))), native=True)
    found = executable.run(list(arrays.values()))
    for (dtype, x), got in zip(arrays.items(), found, strict=True):
        with np.errstate(all="ignore"):
            want = op.reference(x.astype(np.float64))
            error = units(got.astype(np.float64), want, dtype)
        worst = int(np.argmax(error))
        assert error[worst] <= MOST[dtype], (dtype, x[worst], got[worst], want[worst])
