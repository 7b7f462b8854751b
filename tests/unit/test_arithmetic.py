"""Arithmetic on lanes: exact operations, comparisons, integers and casts."""

import operator
from fractions import Fraction

import numpy as np
import pytest

from tests.unit.elementwise import compiled
from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.backends.llvm.conversions import round_to
from tiga.ops.arithmetic import PREDICATES, Arithmetic
from tiga.types import (
    DTYPES,
    FLOATS,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
)

A = VectorArithmetic()
COMPUTE = (float32, float64)
INTEGERS = (int8, int16, int32, int64)
LANES = (0, 3, 16)
EDGES = (0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 0.1)


def floats(dtype, count=64, seed=0):
    """Edge values, then numbers of every size."""
    rng = np.random.default_rng(seed)
    spread = rng.standard_normal(count) * 10.0 ** rng.integers(-12, 12, count)
    return np.concatenate([np.array(EDGES), spread]).astype(dtype.numpy)


def pairs(values):
    """Every value with every other."""
    left, right = np.meshgrid(values, values)
    return left.ravel().copy(), right.ravel().copy()


def same(got, want):
    """Equal bits, except that all NaN are alike."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(got[kept], want[kept])
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))


def test_every_method_of_the_protocol_is_there():
    names = [name for name in vars(Arithmetic) if not name.startswith("_")]
    assert len(names) > 30
    assert not [name for name in names if not callable(getattr(A, name, None))]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "copysign", "rem"])
def test_binary_floats_are_ieee(name, lanes):
    reference = {"rem": np.fmod, "copysign": np.copysign}.get(name) or getattr(
        operator, "truediv" if name == "div" else name
    )
    for dtype in COMPUTE:
        a, b = pairs(floats(dtype, 12))
        run = compiled(getattr(A, name), [dtype, dtype], dtype, lanes)
        with np.errstate(all="ignore"):
            same(run(a, b), reference(a, b))


@pytest.mark.parametrize("dtype", COMPUTE)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("neg", np.negative),
        ("abs", np.abs),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("roundeven", np.rint),
        ("sqrt", np.sqrt),
    ],
)
def test_unary_floats_are_ieee(name, reference, dtype):
    x = floats(dtype)
    with np.errstate(all="ignore"):
        want = reference(x)
    same(compiled(getattr(A, name), [dtype], dtype, 5)(x), want)


@pytest.mark.parametrize("dtype", COMPUTE)
def test_maximum_and_minimum_propagate_nan(dtype):
    a, b = pairs(floats(dtype, 4))
    for name in ("maximum", "minimum"):
        got = compiled(getattr(A, name), [dtype, dtype], dtype, 8)(a, b)
        np.testing.assert_array_equal(got, getattr(np, name)(a, b))


@pytest.mark.parametrize("predicate", PREDICATES)
def test_comparisons_follow_ieee(predicate):
    for dtype in COMPUTE:
        a, b = pairs(floats(dtype, 4))
        body = lambda x, y: A.compare(predicate, x, y)  # noqa: E731
        got = compiled(body, [dtype, dtype], bool_, 16)(a, b)
        np.testing.assert_array_equal(got, getattr(operator, predicate)(a, b))


@pytest.mark.parametrize("dtype", COMPUTE)
def test_a_product_and_a_sum_are_not_contracted(dtype):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 512)).astype(dtype.numpy)
    c = -(a * b)  # a contracted sum is the product's rounding error, mostly not 0
    apart = lambda x, y, z: A.add(A.mul(x, y), z)  # noqa: E731
    for lanes in (0, 7, 16):
        got = compiled(apart, [dtype] * 3, dtype, lanes)(a, b, c)
        np.testing.assert_array_equal(got, np.zeros_like(got))
        fused = compiled(A.fma, [dtype] * 3, dtype, lanes)(a, b, c)
        exact = [
            float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
            for x, y, z in zip(a, b, c, strict=True)
        ]
        np.testing.assert_array_equal(fused, np.array(exact, dtype.numpy))
        assert np.count_nonzero(fused) > 400


def test_constants_take_the_type_of_their_example():
    for number in (0.1, np.nan, -np.inf, 3):
        got = compiled(lambda x, n=number: A.constant(n, x), [float32], float32, 3)(np.zeros(5))
        np.testing.assert_array_equal(got, np.full(5, number, np.float32))
    as_boolean = compiled(lambda x: A.constant(True, x), [bool_], bool_, 9)
    assert as_boolean(np.zeros(4, bool)).all()
    as_byte = compiled(lambda x: A.constant(-3, x), [int8], int8, 0)
    assert (as_byte(np.zeros(4, np.int8)) == -3).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype):
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(1)
    some = rng.integers(info.min, info.max, 9, dtype.numpy)
    values = np.array([0, 1, -1, 2, -2, 3, 7, -7, info.max, info.min], dtype.numpy)
    a, b = pairs(np.concatenate([values, some]))
    run = lambda name: compiled(getattr(A, name), [dtype, dtype], dtype, 16)(a, b)  # noqa: E731
    with np.errstate(all="ignore"):
        for name in ("add", "sub", "mul"):
            np.testing.assert_array_equal(run(name), getattr(operator, name)(a, b))
        np.testing.assert_array_equal(run("maximum"), np.maximum(a, b))
        np.testing.assert_array_equal(run("minimum"), np.minimum(a, b))
        np.testing.assert_array_equal(run("rem"), np.fmod(a, b))
    quotients = [_truncated(int(x), int(y), info) for x, y in zip(a, b, strict=True)]
    assert run("div").tolist() == quotients
    for predicate in PREDICATES:
        body = lambda x, y, p=predicate: A.compare(p, x, y)  # noqa: E731
        got = compiled(body, [dtype, dtype], bool_, 4)(a, b)
        np.testing.assert_array_equal(got, getattr(operator, predicate)(a, b))


def _truncated(x, y, info):
    """x / y towards zero, wrapped to the type; 0 where y is 0."""
    if y == 0:
        return 0
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return (quotient - info.min) % 2**info.bits + info.min


def test_booleans():
    a, b = pairs(np.array([False, True]))
    both = [bool_, bool_]
    np.testing.assert_array_equal(compiled(A.logical_and, both, bool_, 4)(a, b), a & b)
    np.testing.assert_array_equal(compiled(A.logical_or, both, bool_, 4)(a, b), a | b)
    np.testing.assert_array_equal(compiled(A.maximum, both, bool_, 3)(a, b), a | b)
    np.testing.assert_array_equal(compiled(A.minimum, both, bool_, 0)(a, b), a & b)
    np.testing.assert_array_equal(compiled(A.logical_not, [bool_], bool_, 0)(a), ~a)
    less = compiled(lambda x, y: A.compare("lt", x, y), both, bool_, 4)
    np.testing.assert_array_equal(less(a, b), ~a & b)
    choose = compiled(A.select, [bool_, float32, float32], float32, 3)
    np.testing.assert_array_equal(choose(a, np.full(4, 2.0), np.full(4, 3.0)), np.where(a, 2, 3))


def _sources(dtype):
    """Values that every target can hold after rounding or wrapping, and how many they are."""
    if dtype == bool_:
        return np.array([False, True, True, False])
    if dtype.is_float:
        numbers = [0.0, -0.0, 1.0, -1.0, 0.4, 2.5, 3.5, -2.7, 99.9, -99.9, 126.0, 0.3333333]
        return np.array(numbers).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    numbers = np.array([0, 1, 2, 100, 127, info.max, info.max // 3, info.min, info.min // 3])
    return np.concatenate([numbers, np.random.default_rng(5).integers(info.min, info.max, 40)])


def _numpy_cast(values, target):
    """numpy's cast, by way of float32 where torch goes that way."""
    if target.is_float and target.itemsize == 2:
        return values.astype(np.float32).astype(target.numpy)
    if target.kind == "u" and values.dtype.kind not in "iub":
        return values.astype(np.int32).astype(np.uint8)
    return values.astype(target.numpy)


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_casts_between_all_pairs(source):
    values = _sources(source).astype(source.numpy)
    for i, target in enumerate(DTYPES.values()):
        body = lambda x, t=target: A.cast(x, source, t)  # noqa: E731
        with np.errstate(all="ignore"):
            want = _numpy_cast(values, target)
        got = compiled(body, [source], target, (0, 5, 16)[i % 3])(values)
        np.testing.assert_array_equal(got, want, err_msg=f"{source} to {target}")


@pytest.mark.parametrize("target", [float16, bfloat16])
def test_16_bit_rounding_is_exact_for_every_kind_of_number(target):
    every = np.arange(2**16, dtype=np.uint16).view(target.numpy)
    widened = compiled(lambda x: A.cast(x, target, float32), [target], float32, 16)(every)
    same(widened, every.astype(np.float32))
    # All numbers of the format, the middles between neighbours, and the floats around those.
    bits = np.random.default_rng(2).integers(0, 2**32, 40_000, dtype=np.uint32)
    middles = widened.view(np.uint32) + np.uint32(0x8000 if target == bfloat16 else 0x1000)
    near = np.concatenate([middles, middles + np.uint32(1), middles - np.uint32(1), bits])
    values = near.view(np.float32)
    with np.errstate(all="ignore"):
        want = values.astype(target.numpy)
    narrowed = compiled(lambda x: A.cast(x, float32, target), [float32], target, 16)(values)
    same(narrowed.astype(np.float32), want.astype(np.float32))
    in_place = compiled(lambda x: round_to(x, target), [float32], float32, 7)(values)
    same(in_place, want.astype(np.float32))


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_floats_beyond_an_integer_saturate_and_do_not_trap(source):
    values = np.array([np.nan, np.inf, -np.inf, 3e4, -3e4]).astype(source.numpy)
    for target in (int32, int64):
        info = np.iinfo(target.numpy)
        got = compiled(lambda x, t=target: A.cast(x, source, t), [source], target, 4)(values)
        assert got[:3].tolist() == [0, info.max, info.min]
        assert got[3:].tolist() == values[3:].astype(np.int64).tolist()
    narrow = compiled(lambda x: A.cast(x, source, int8), [source], int8, 4)(values)
    assert narrow[3:].tolist() == values[3:].astype(np.int32).astype(np.int8).tolist()


def test_floats_at_the_edge_of_int64():
    edge = np.array(
        [2.0**63, np.nextafter(2.0**63, 0), -(2.0**63), np.nextafter(-(2.0**63), -1e30)]
    )
    got = compiled(lambda x: A.cast(x, float64, int64), [float64], int64, 2)(edge)
    assert got.tolist() == [2**63 - 1, 2**63 - 1024, -(2**63), -(2**63)]
