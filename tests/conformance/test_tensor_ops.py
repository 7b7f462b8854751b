"""Every elementwise op of whole tensors, in every dtype that it takes, compiled against numpy.

Which ops those are, and where their samples lie, the registry says.
"""

import numpy as np
import pytest

from tiga.backends.reference.dense import apply_op
from tiga.ops import REGISTRY, Pointwise, leaf, pointwise
from tiga.passes.tensor_fusable import is_pointwise
from tiga.tensor_compiler import compile_tensors
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import DTYPES, GLOBAL, DType, Type, bool_, float32, float64

ALL = tuple(DTYPES.values())
COMPLEX = tuple(d for d in ALL if d.is_complex)
REALS = tuple(d for d in ALL if d.kind in "iuf")
FLOATS = tuple(d for d in ALL if d.is_float)
INTEGERS = tuple(d for d in ALL if d.kind in "iu")

NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if issubclass(op, Pointwise) and op.__module__ != "tiga.ops.random"
)
_TAKES = {
    **dict.fromkeys(("add", "sub", "mul"), (*REALS, *COMPLEX)),
    "neg": (*(d for d in REALS if d.kind != "u"), *COMPLEX),
    **dict.fromkeys(("abs", "sign", "maximum", "minimum", "lt", "le", "gt", "ge"), REALS),
    **dict.fromkeys(("floor_divide", "remainder"), REALS),
    **dict.fromkeys(("eq", "ne", "where", "stop_gradient"), ALL),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), (bool_,)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"),
                    (bool_, *INTEGERS)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("conj", "real", "imag"), COMPLEX),
    "make_complex": (float32, float64),
    **dict.fromkeys(("div", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos",
                     "tan", "sinh", "cosh", "tanh", "pow", "asin", "acos", "atan", "asinh",
                     "acosh", "atanh"), (*FLOATS, *COMPLEX)),
}  # fmt: skip
"""What is no function of floats alone."""

BY_NUMPY = {
    *((name, dtype) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
      for dtype in COMPLEX),
    *(("nextafter", dtype) for dtype in FLOATS if dtype.itemsize == 2),
}  # fmt: skip
"""Ops and dtypes that kernels do not compute."""


def _takes(name: str) -> tuple[DType, ...]:
    return _TAKES.get(name, FLOATS)


def _applied(name: str, dtype: DType, count: int) -> Node:
    """The op on inputs of a dtype."""
    op = REGISTRY[name]()
    dtypes = [bool_, dtype, dtype] if name == "where" else [dtype] * op.arity
    types = (Type(d, (count,), GLOBAL) for d in dtypes)
    return op(*(leaf.Input(f"{dtype}{i}", of)() for i, of in enumerate(types)))


def _sample(name: str, node: Node, position: int, rng: np.random.Generator) -> np.ndarray:
    dtype, shape = node.type.dtype, node.type.shape
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float or dtype.is_complex:
        low, high = REGISTRY[name].domain
        array = rng.uniform(low, high, shape)
        if dtype.is_complex:
            array = array + 1j * rng.uniform(low, high, shape)
        return array.astype(dtype.numpy)
    low = 0 if dtype.kind == "u" else -20
    array = rng.integers(low, 100, shape)
    if position == 1 and name.endswith("shift"):
        array = array % (8 * dtype.itemsize)
    divides = position == 1 and name in ("floor_divide", "remainder", "rem", "div")
    return np.where(divides & (array == 0), 3, array).astype(dtype.numpy)


def _close(got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    assert got.dtype == want.dtype
    if dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    eps = {2: 2.0**-7, 4: 2.0**-22, 8: 2.0**-50}[np.dtype(dtype.numpy).itemsize
                                                // (2 if dtype.is_complex else 1)]  # fmt: skip
    wide = np.complex128 if dtype.is_complex else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=8 * eps, atol=8 * eps)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cast"])
def test_op(name: str) -> None:
    rng = np.random.default_rng(5)
    found = {dtype: _applied(name, dtype, 203) for dtype in _takes(name)}
    # An op may fold to a simpler one.
    nodes = {dtype: node for dtype, node in found.items() if node.op.name == name}
    numpy_s = {dtype for dtype, node in nodes.items() if not is_pointwise(node)}
    assert numpy_s == {dtype for op, dtype in BY_NUMPY if op == name}, name
    compiled = [node for dtype, node in nodes.items() if dtype not in numpy_s]
    _check(name, compiled, rng)


def _check(name: str, nodes: list[Node], rng: np.random.Generator) -> None:
    inputs = list(dict.fromkeys(child for node in nodes for child in node.inputs))
    executable = compile_tensors(Program(tuple(inputs), tuple(nodes)), native=True)
    assert executable.calls == (), name
    places = {child: place for node in nodes for place, child in enumerate(node.inputs)}
    arrays = {child: _sample(name, child, places[child], rng) for child in inputs}
    for node, got in zip(nodes, executable.run(list(arrays.values())), strict=True):
        with np.errstate(all="ignore"):
            want = apply_op(node, [arrays[child][None] for child in node.inputs])[0]
        _close(got, want, node.type.dtype)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_cast(source: DType) -> None:
    targets = [t for t in ALL if t != source and not (source.is_complex and t.kind not in "cb")]
    x = leaf.Input("x", Type(source, (99,), GLOBAL))()
    nodes = [pointwise.Cast(target)(x) for target in targets]
    _check("exp", nodes, np.random.default_rng(6))
