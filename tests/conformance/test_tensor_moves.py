"""Ops of whole tensors that read at positions, carry along an axis or reduce one, in every dtype
and along every axis, compiled against their meaning in numpy."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tiga.backends.reference.dense import apply_op
from tiga.errors import InvalidIndex
from tiga.ops import leaf
from tiga.ops.base import Op
from tiga.ops.pointwise import add
from tiga.ops.tensor_index import AddAlong, IndexAdd, IndexTake, TakeAlong
from tiga.ops.tensor_reduce import ArgMax, ArgMin, Max, Min, Prod, Sum
from tiga.ops.tensor_scan import CumProd, CumSum, Recurrence
from tiga.tensor_compiler import TensorExecutable, compile_tensors
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import DTYPES, GLOBAL, DType, Shape, Type, bool_, float32, int64

ALL = tuple(DTYPES.values())
NUMBERS = tuple(d for d in ALL if d != bool_)
REALS = tuple(d for d in NUMBERS if not d.is_complex)
SHAPES: tuple[Shape, ...] = ((70,), (5, 4, 35))
ODD: tuple[Shape, ...] = ((3, 40, 1), (1, 50, 2), (7, 33))
"""More shapes, for one dtype."""

EPS = {2: 2.0**-7, 4: 2.0**-20, 8: 2.0**-48}


def inputs_of(*types: Type) -> list[Node]:
    return [leaf.Input(f"x{i}", of)() for i, of in enumerate(types)]


def numbers(dtype: DType, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -3, 5, shape).astype(dtype.numpy)
    array = rng.uniform(-1.5, 1.5, shape)
    if dtype.is_complex:
        array = array + 1j * rng.uniform(-1.5, 1.5, shape)
    return array.astype(dtype.numpy)


def compiled(inputs: Sequence[Node], *outputs: Node) -> TensorExecutable:
    executable = compile_tensors(Program(tuple(inputs), outputs), native=True)
    assert executable.calls == ()
    return executable


def check(node: Node, inputs: Sequence[Node], arrays: Sequence[np.ndarray]) -> None:
    """The op, and the op within an expression that joins its kernel."""
    doubled = add(node, node) if node.type.dtype != bool_ else node
    got, twice = compiled(inputs, node, doubled).run(list(arrays))
    with np.errstate(all="ignore"):
        want = apply_op(node, [array[None] for array in arrays])[0]
    dtype = node.type.dtype
    assert (got.dtype, got.shape) == (want.dtype, node.type.shape)
    if dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(twice, want + want if dtype != bool_ else want)
        return
    eps = EPS[dtype.itemsize // (2 if dtype.is_complex else 1)]
    wide = np.complex128 if dtype.is_complex else np.float64
    got, twice, want = (a.astype(wide) for a in (got, twice, want))
    scale = np.abs(want).max(initial=1.0)
    np.testing.assert_allclose(got, want, rtol=8 * eps, atol=eps * scale)
    np.testing.assert_allclose(twice, 2 * want, rtol=8 * eps, atol=2 * eps * scale)


def along_every_axis(dtype: DType) -> Iterator[tuple[Shape, int]]:
    shapes = SHAPES + (ODD if dtype == float32 else ())
    yield from ((shape, axis) for shape in shapes for axis in range(len(shape)))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_picks(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    for shape, axis in along_every_axis(dtype):
        extent = shape[axis]
        for there in ((9,), (2, 3), ()):
            x, index = inputs_of(Type(dtype, shape, GLOBAL), Type(int64, there, GLOBAL))
            arrays = numbers(dtype, shape, rng), rng.integers(-extent, extent, there)
            check(IndexTake(axis)(x, index), (x, index), arrays)
        lines = (*shape[:axis], 6, *shape[axis + 1 :])
        x, index = inputs_of(Type(dtype, shape, GLOBAL), Type(int64, lines, GLOBAL))
        arrays = numbers(dtype, shape, rng), rng.integers(-extent, extent, lines)
        check(TakeAlong(axis)(x, index), (x, index), arrays)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_sums_at_positions(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    for shape, axis in along_every_axis(dtype):
        index_types = Type(int64, shape[axis : axis + 1], GLOBAL), Type(int64, shape, GLOBAL)
        for op, of in zip((IndexAdd(axis, 5), AddAlong(axis, 5)), index_types, strict=True):
            x, index = inputs_of(Type(dtype, shape, GLOBAL), of)
            arrays = numbers(dtype, shape, rng), rng.integers(-5, 5, of.shape)
            check(op(x, index), (x, index), arrays)


@pytest.mark.parametrize("kind", [CumSum, CumProd, Recurrence])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_scans(kind: type[Op], dtype: DType) -> None:
    rng = np.random.default_rng(3)
    for (shape, axis), reverse in itertools.product(along_every_axis(dtype), (0, 1)):
        types = [Type(dtype, shape, GLOBAL)] * (2 if kind is Recurrence else 1)
        inputs = inputs_of(*types)
        arrays = [numbers(dtype, shape, rng) * dtype.numpy.type(1) for _ in types]
        node = kind(axis, reverse)(*inputs)
        if node.op.name != "input":  # of one element
            check(node, inputs, arrays)


@pytest.mark.parametrize("kind", [Sum, Prod, Max, Min, ArgMax, ArgMin])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_reductions(kind: type[Op], dtype: DType) -> None:
    positions = kind in (ArgMax, ArgMin)
    if (dtype.is_complex and kind not in (Sum, Prod)) or (dtype == bool_ and not positions):
        pytest.skip("not defined")
    rng = np.random.default_rng(4)
    for shape, axis in along_every_axis(dtype):
        (x,) = inputs_of(Type(dtype, shape, GLOBAL))
        node = kind(axis if positions else (axis,))(x)
        if node.op.name not in ("reshape", "constant"):  # of one element
            check(node, (x,), [numbers(dtype, shape, rng)])


@pytest.mark.parametrize("shape", SHAPES + ODD, ids=str)
def test_nan_comes_first_among_extrema(shape: Shape) -> None:
    rng = np.random.default_rng(5)
    array = rng.choice([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], shape, p=[0.3, 0.3, 0.2, 0.09,
                                                                           0.09, 0.02])  # fmt: skip
    (x,) = inputs_of(Type(DTYPES["float64"], shape, GLOBAL))
    for kind, rule in ((ArgMax, np.argmax), (ArgMin, np.argmin)):
        for axis in (a for a, extent in enumerate(shape) if extent > 1):
            (got,) = compiled([x], kind(axis)(x)).run([array])
            np.testing.assert_array_equal(got, rule(array, axis))


def test_extremes_at_either_end_of_a_dtype() -> None:
    for dtype in REALS:
        limits = np.finfo(np.float64) if dtype.is_float else np.iinfo(dtype.numpy)
        edge = -np.inf if dtype.is_float else limits.min
        array = np.full((3, 50), edge).astype(dtype.numpy)
        (x,) = inputs_of(Type(dtype, array.shape, GLOBAL))
        for got in compiled([x], ArgMax(1)(x), ArgMin(1)(x)).run([array]):
            np.testing.assert_array_equal(got, 0)


@pytest.mark.parametrize("wrong", [7, -8, 2**40, -(2**62)])
def test_positions_are_compared_before_anything_is_read(wrong: int) -> None:
    rng = np.random.default_rng(6)
    for shape in ((7,), (7, 33), (7, 2)):
        x, index = inputs_of(Type(float32, shape, GLOBAL), Type(int64, (40,), GLOBAL))
        array, positions = numbers(float32, shape, rng), rng.integers(-7, 7, 40)
        executable = compiled((x, index), IndexTake(0)(x, index))
        broken = positions.copy()
        broken[29] = wrong
        with pytest.raises(InvalidIndex, match=f"position {wrong} is out of range .* extent 7"):
            executable.run([array, broken])
        np.testing.assert_array_equal(executable.run([array, positions])[0], array[positions])
        values = inputs_of(Type(float32, (40, *shape[1:]), GLOBAL))[0]
        adds = compiled((values, index), IndexAdd(0, 7)(values, index))
        with pytest.raises(InvalidIndex, match=f"position {wrong} is out of range .* extent 7"):
            adds.run([numbers(float32, values.type.shape, rng), broken])


def test_recurrences_with_infinite_first_factors_and_zeros() -> None:
    a, b = inputs_of(*[Type(float32, (2, 40), GLOBAL)] * 2)
    factors, terms = np.full((2, 40), 1e30, np.float32), np.zeros((2, 40), np.float32)
    factors[:, 0] = np.inf
    terms[1, 20], factors[1, 21:] = 3.0, 0.5
    (got,) = compiled((a, b), Recurrence(1)(a, b)).run([factors, terms])
    want = np.zeros((2, 40), np.float32)
    want[1, 20:] = 3.0 * 0.5 ** np.arange(20)
    np.testing.assert_array_equal(got, want)
    products = np.full((1, 40), 1e30, np.float32)
    products[0, 0] = 0.0
    (x,) = inputs_of(Type(float32, (1, 40), GLOBAL))
    np.testing.assert_array_equal(compiled([x], CumProd(1)(x)).run([products])[0], 0)
