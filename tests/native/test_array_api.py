"""Functions against array-api-strict: values, special values included, shapes and dtypes."""

import itertools

import array_api_strict as xp
import numpy as np
import pytest

import tiga as tg
from tiga import errors

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-30, 7.25]
REALS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
ULPS = {"float32": 4, "float64": 4, "complex64": 16, "complex128": 16}


def sample(name: str) -> np.ndarray:
    if name == "bool":
        return np.array([False, True, True, False])
    if name in INTEGERS:
        return np.array([0, 1, 2, 3, 7, 100]).astype(name)
    if name in COMPLEX:
        numbers = [0.5, -1.5, 2.0, 3.25]
        return np.array([a + 1j * b for a in numbers for b in numbers]).astype(name)
    return np.array(SPECIAL).astype(name)


def close(got: tg.Tensor, want: object, context: str) -> None:
    expected = np.asarray(want)
    assert str(got.dtype) == str(expected.dtype), f"{context}: {got.dtype}, not {expected.dtype}"
    assert got.shape == expected.shape, f"{context}: {got.shape}, not {expected.shape}"
    actual = got.numpy()
    if expected.dtype.kind in "fc":
        limit = ULPS[str(expected.dtype)] * np.finfo(expected.dtype).eps
        np.testing.assert_allclose(actual, expected, rtol=limit, atol=limit / 4, err_msg=context)
        if expected.dtype.kind == "f":
            zeros = (actual == 0) & (expected == 0)
            signs = np.signbit(actual[zeros]) == np.signbit(expected[zeros])
            assert signs.all(), f"{context}: the sign of a zero"
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=context)


def pair(array: np.ndarray) -> tuple[tg.Tensor, object]:
    return tg.tensor(array), xp.asarray(array)


UNARY = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log",
         "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh"), (*REALS, *COMPLEX),
    ),
    **dict.fromkeys(("abs", "negative", "sign", "square"), (*REALS, *INTEGERS, *COMPLEX)),
    **dict.fromkeys(("ceil", "floor", "trunc", "round"), (*REALS, *INTEGERS)),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), (*REALS, *COMPLEX)),
    **dict.fromkeys(("reciprocal", "signbit"), REALS),
    **dict.fromkeys(("conj", "imag", "real"), COMPLEX),
    "bitwise_invert": ("bool", *INTEGERS),
    "logical_not": ("bool",),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name: str) -> None:
    for dtype in UNARY[name]:
        if name == "negative" and dtype == "uint8":
            continue
        a, b = pair(sample(dtype))
        with np.errstate(all="ignore"):
            close(getattr(tg, name)(a), getattr(xp, name)(b), f"{name} of {dtype}")


def mixes(*groups: tuple[str, ...]) -> list[tuple[str, str]]:
    return [m for group in groups for m in itertools.product(group, group)]


NUMERIC = mixes(REALS, INTEGERS, COMPLEX)
BINARY = {
    **dict.fromkeys(("add", "multiply", "subtract"), NUMERIC),
    **dict.fromkeys(("divide",), mixes(REALS, COMPLEX)),
    **{key: [*NUMERIC, ("bool", "bool")] for key in ("equal", "not_equal")},
    **dict.fromkeys(
        ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"),
        mixes(REALS, INTEGERS),
    ),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), mixes(REALS)),
    **dict.fromkeys(("floor_divide", "remainder"), mixes(REALS)),
    **dict.fromkeys(("pow",), mixes(REALS)),
    **{
        f"bitwise_{key}": [*mixes(INTEGERS), ("bool", "bool")] for key in ("and", "or", "xor")
    },
    **{key: [("bool", "bool")] for key in ("logical_and", "logical_or", "logical_xor")},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary(name: str) -> None:
    for left, right in BINARY[name]:
        a, b = pair(sample(left)[:, None])
        c, d = pair(sample(right)[None, :])
        with np.errstate(all="ignore"):
            want = getattr(xp, name)(b, d)
            close(getattr(tg, name)(a, c), want, f"{name} of {left} and {right}")


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division(name: str, dtype: str) -> None:
    top = np.array([7, 8, 9, 100]).astype(dtype)
    below = np.array([1, 2, 3, 5]).astype(dtype)
    signs = (1,) if dtype == "uint8" else (1, -1)
    for s, t in itertools.product(signs, signs):
        a, b = pair((top * s).astype(dtype)[:, None])
        c, d = pair((below * t).astype(dtype)[None, :])
        close(getattr(tg, name)(a, c), getattr(xp, name)(b, d), f"{name} of {dtype}")


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(name: str, dtype: str) -> None:
    a, b = pair(np.array([1, 2, 60]).astype(dtype))
    c, d = pair(np.array([0, 1, 2]).astype(dtype))
    close(getattr(tg, name)(a, c), getattr(xp, name)(b, d), f"{name} of {dtype}")


REDUCTIONS = ("sum", "prod", "mean", "var", "std", "max", "min", "all", "any", "argmax", "argmin",
              "count_nonzero")  # fmt: skip
AXES = (None, 0, 1, -1, (0, 2), (0, 1, 2), ())


def _reduced_dtypes(name: str) -> tuple[str, ...]:
    if name in ("mean", "var", "std"):
        return REALS
    if name in ("all", "any"):
        return ("bool", *REALS, "int32")
    if name in ("sum", "prod", "count_nonzero"):
        return (*REALS, *INTEGERS, *COMPLEX)
    return (*REALS, *INTEGERS)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    rng = np.random.default_rng(3)
    for dtype, axis, keep in itertools.product(_reduced_dtypes(name), AXES, (False, True)):
        if isinstance(axis, tuple) and name in ("argmax", "argmin"):
            continue
        array = rng.integers(0, 3, (3, 4, 5)).astype(dtype)
        a, b = pair(array)
        got = getattr(tg, name)(a, axis=axis, keepdims=keep)
        if dtype == "uint8" and name in ("sum", "prod"):
            # The standard gives the default unsigned type, which Tiga has not: int64 instead.
            b = xp.astype(b, xp.int64)
        want = getattr(xp, name)(b, axis=axis, keepdims=keep)
        close(got, want, f"{name} of {dtype} over {axis}")


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sum"])
def test_nan_wins_in_reductions(name: str) -> None:
    a, b = pair(np.array([[1.0, np.nan, 3.0, np.nan], [0.0, -0.0, 0.0, -0.0]]))
    close(getattr(tg, name)(a, axis=1), getattr(xp, name)(b, axis=1), name)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_scans(name: str) -> None:
    for dtype, axis, initial in itertools.product((*REALS, "int32"), (0, 1), (False, True)):
        a, b = pair(np.arange(1, 13).reshape(3, 4).astype(dtype))
        options = {"axis": axis, "include_initial": initial}
        close(getattr(tg, name)(a, **options), getattr(xp, name)(b, **options), f"{name} {dtype}")


A = np.arange(24.0).reshape(2, 3, 4)
MANIPULATION = {
    "reshape": ((4, 6),), "permute_dims": ((2, 0, 1),), "flip": (), "matrix_transpose": (),
    "expand_dims": (1,), "moveaxis": (0, 2), "tile": ((2, 1, 3),), "broadcast_to": ((5, 2, 3, 4),),
    "tril": (), "triu": (), "roll": (3,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MANIPULATION))
def test_manipulation(name: str) -> None:
    a, b = pair(A)
    arguments = MANIPULATION[name]
    options = {"axis": 1} if name == "expand_dims" else {}
    positional = () if options else arguments
    close(
        getattr(tg, name)(a, *positional, **options), getattr(xp, name)(b, *positional, **options),
        name,
    )  # fmt: skip


def test_joining_and_parting() -> None:
    a, b = pair(A)
    close(tg.concat([a, a], axis=1), xp.concat([b, b], axis=1), "concat")
    close(tg.concat([a, a], axis=None), xp.concat([b, b], axis=None), "concat")
    close(tg.stack([a, a], axis=-1), xp.stack([b, b], axis=-1), "stack")
    for got, want in zip(tg.unstack(a, axis=1), xp.unstack(b, axis=1), strict=True):
        close(got, want, "unstack")
    close(tg.squeeze(a[:1], axis=0), xp.squeeze(b[:1, ...], axis=0), "squeeze")
    close(tg.roll(a, (1, 2), axis=(0, 2)), xp.roll(b, (1, 2), axis=(0, 2)), "roll")
    close(tg.repeat(a, 2, axis=1), xp.repeat(b, 2, axis=1), "repeat")
    close(tg.diff(a, axis=1), xp.diff(b, axis=1), "diff")
    for got, want in zip(tg.meshgrid(a[0, 0], a[1, 1]), xp.meshgrid(b[0, 0, :], b[1, 1, :]),
                         strict=True):  # fmt: skip
        close(got, want, "meshgrid")


def test_products() -> None:
    a, b = pair(A)
    v, w = pair(np.arange(4.0))
    m, n = pair(np.arange(20.0).reshape(4, 5))
    close(a @ m, b @ n, "matmul")
    close(a @ v, b @ w, "matmul with a vector")
    close(v @ m, w @ n, "a vector times")
    close(v @ v, w @ w, "two vectors")
    close(a @ tg.matrix_transpose(a), b @ xp.matrix_transpose(b), "batched")
    close(tg.tensordot(a, m, axes=1), xp.tensordot(b, n, axes=1), "tensordot")
    close(tg.vecdot(a, v), xp.vecdot(b, w), "vecdot")
    for equation in ("ijk,kl->ijl", "ijk->k", "ijk,ijk->", "ijk->kji", "...k,k->...", "iij->ij"):
        other = m if ",kl" in equation else a if ",ijk" in equation else v
        operands = (a,) if "," not in equation else (a, other)
        if equation == "iij->ij":
            operands = (tg.tensor(A[:, :2]),)
        want = np.einsum(equation, *(o.numpy() for o in operands))
        np.testing.assert_allclose(tg.einsum(equation, *operands).numpy(), want, err_msg=equation)
    for equation, many in (("k,ijk,kl->li", (v, a, m)), ("l,ijk,kl,j->i", (m[0], a, m, v[:3]))):
        want = np.einsum(equation, *(o.numpy() for o in many))
        np.testing.assert_allclose(tg.einsum(equation, *many).numpy(), want, err_msg=equation)


@pytest.mark.parametrize("descending", [False, True])
def test_order(descending: bool) -> None:
    for dtype in (*REALS, *INTEGERS):
        a, b = pair(np.array([[3, 1, 2, 1], [0, 5, 5, 4]]).astype(dtype))
        for axis in (0, -1):
            options = {"axis": axis, "descending": descending}
            close(tg.sort(a, **options), xp.sort(b, **options), "sort")
            close(tg.argsort(a, **options), xp.argsort(b, **options), "argsort")


def test_sets_and_searching() -> None:
    a, b = pair(np.array([[3, 1], [2, 1]]))
    for got, want in zip(tg.unique_all(a), xp.unique_all(b), strict=True):
        close(got, want, "unique_all")
    for got, want in zip(tg.nonzero(a - 1), xp.nonzero(b - 1), strict=True):
        close(got, want, "nonzero")
    s, t = pair(np.array([1.0, 2.0, 2.0, 4.0]))
    q, r = pair(np.array([2.0, 5.0, 0.0]))
    for side in ("left", "right"):
        close(tg.searchsorted(s, q, side=side), xp.searchsorted(t, r, side=side), side)
    i, j = pair(np.array([3, 0, 0]))
    close(tg.take(s, i, axis=0), xp.take(t, j, axis=0), "take")
    k, m = pair(np.array([[0, 1], [1, 0]]))
    close(tg.take_along_axis(a, k, axis=1), xp.take_along_axis(b, m, axis=1), "take_along_axis")


def test_selection() -> None:
    a, b = pair(np.array(SPECIAL))
    close(tg.clip(a, -1.0, 2.0), xp.clip(b, -1.0, 2.0), "clip")
    close(tg.where(a > 0, a, -a), xp.where(b > 0, b, -b), "where")


INDICES = (
    0, -1, (1, 2), slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1),
    (slice(None), 1), (..., 0), (None, 0), (slice(None), None, 2), (..., slice(1, 3)),
    (slice(2, 0, -1), 0), slice(5, 9),
)  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index: object) -> None:
    np.testing.assert_array_equal(tg.tensor(A)[index].numpy(), A[index])


def test_indexing_with_tensors() -> None:
    a = tg.tensor(A)
    i, j = np.array([0, 1, 1]), np.array([2, 0, -1])
    for index in [(i,), (i, j), (slice(None), j), (i, slice(None), j), (slice(None), j, j),
                  (i[:, None], j[None, :])]:  # fmt: skip
        wrapped = tuple(tg.tensor(e) if isinstance(e, np.ndarray) else e for e in index)
        np.testing.assert_array_equal(a[wrapped].numpy(), A[index], err_msg=str(index))
    np.testing.assert_array_equal(a[a > 5].numpy(), A[A > 5])
    np.testing.assert_array_equal(a[:, tg.tensor([True, False, True])].numpy(), A[:, [0, 2]])
    with pytest.raises(errors.InvalidIndex, match="out of range"):
        a[tg.tensor([2])]
    with pytest.raises(errors.InvalidIndex, match="out of range"):
        a[5]
    with pytest.raises(errors.InvalidIndex, match="4 indices for 3 axes"):
        a[0, 0, 0, 0]


def test_promotion_is_the_standard_s() -> None:
    names = ("int8", "int16", "int32", "int64", "uint8")
    for left, right in mixes(names, (*REALS, *COMPLEX)):
        want = str(xp.result_type(getattr(xp, left), getattr(xp, right)))
        assert str(tg.result_type(getattr(tg, left), getattr(tg, right))) == want.split(".")[-1]


def test_numbers_take_the_tensor_s_dtype() -> None:
    assert (tg.ones(2, dtype=tg.float16) * 2.0).dtype == tg.float16
    assert (tg.ones(2, dtype=tg.int8) + 1).dtype == tg.int8
    assert (tg.ones(2) * 1j).dtype == tg.complex64
    assert (1 + tg.ones(2, dtype=tg.float64)).dtype == tg.float64
    with pytest.raises(errors.InvalidValue, match="does not fit"):
        tg.ones(2, dtype=tg.int8) + 1000


def test_inspection() -> None:
    info = tg.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == tg.float32
    assert set(info.dtypes(kind="integral")) == set(INTEGERS)
    assert tg.finfo(tg.float32).eps == np.finfo(np.float32).eps
    assert tg.iinfo(tg.int16).max == 32767
    assert tg.isdtype(tg.float32, ("integral", "real floating"))
    assert tg.can_cast(tg.int8, tg.int32)
    assert not tg.can_cast(tg.float64, tg.float32)
    assert tg.ones(2).__array_namespace__() is tg


def test_creation() -> None:
    close(tg.arange(5), xp.arange(5), "arange")
    close(tg.arange(1, 8, 3), xp.arange(1, 8, 3), "arange")
    close(tg.linspace(0.0, 1.0, 5, dtype=tg.float64), xp.linspace(0.0, 1.0, 5), "linspace")
    close(tg.eye(3, 4, k=1, dtype=tg.float64), xp.eye(3, 4, k=1), "eye")
    close(tg.full((2, 3), 7), xp.full((2, 3), 7), "full")
    close(tg.zeros((2,), dtype=tg.int8), xp.zeros((2,), dtype=xp.int8), "zeros")
    close(tg.ones_like(tg.arange(3)), xp.ones_like(xp.arange(3)), "ones_like")
