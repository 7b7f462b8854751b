"""Compiled programs give what numpy gives: every fused op, layout and reduction, special values."""

import itertools

import numpy as np
import pytest

import tiga as tg
from tests.native.test_array_api import BINARY, UNARY, sample
from tiga.frontends.tensor.evaluate import realize_all

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "complex64", "complex128")
EPS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1.2e-7, "complex64": 1.2e-7}


def both(make, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tg.Tensor], list[tg.Tensor]]:
    """What `make` builds, computed by compiled code and by numpy."""
    results = []
    for backend in ("native", "python"):
        monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
        made = make()
        realize_all(made)
        results.append(made)
    return results[0], results[1]


def same(got: tg.Tensor, want: tg.Tensor, ulps: float, context: str) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    a, b = (
        t.numpy().astype(np.complex128 if t.dtype.is_complex else np.float64) for t in (got, want)
    )
    limit = ulps * EPS.get(str(got.dtype), 2.3e-16)
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=context)
    if got.dtype.kind == "f":
        assert (np.isnan(a) == np.isnan(b)).all(), context


def values(dtype: str, shape: tuple[int, ...]) -> tg.Tensor:
    rng = np.random.default_rng(7)
    array = rng.uniform(-2, 2, shape)
    if dtype.startswith("complex"):
        array = array + 1j * rng.uniform(-2, 2, shape)
    if dtype.startswith("int"):
        array = rng.integers(-9, 9, shape)
    return tg.tensor(array).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_on_special_values(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [n for n, kinds in UNARY.items() if dtype in kinds]
    extra = ("erf", "sigmoid", "relu", "gelu", "silu", "softplus", "rsqrt")
    every = sorted({*names, *extra})

    def make() -> list[tg.Tensor]:
        x = tg.tensor(np.tile(sample(dtype), 3))
        return [getattr(tg, name)(x) for name in every]

    for name, got, want in zip(every, *both(make, monkeypatch), strict=True):
        same(got, want, 8, name)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_two_operands_on_special_values(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(n for n, mix in BINARY.items() if (dtype, dtype) in mix)
    if dtype == "int32":
        names = [n for n in names if n not in ("floor_divide", "remainder")]

    def make() -> list[tg.Tensor]:
        x, y = tg.tensor(sample(dtype)[:, None]), tg.tensor(sample(dtype)[None, :])
        return [getattr(tg, name)(x, y) for name in names]

    for name, got, want in zip(names, *both(make, monkeypatch), strict=True):
        same(got, want, 8, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 33), (5, 130)])
def test_layouts(dtype: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = shape
    x, v, r = values(dtype, shape), values(dtype, (columns,)), values(dtype, (rows, 1))

    def make() -> list[tg.Tensor]:
        y = x * v + r
        return [y, y.sum(1), y.sum(0), y.sum(), (y * x).sum(1, keepdims=True) * y, x.T + 1]

    for place, (got, want) in enumerate(zip(*both(make, monkeypatch), strict=True)):
        same(got, want, 300, f"output {place}")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_in_several_phases(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = values(dtype, (37, 50)), values(dtype, (50,))

    def make() -> list[tg.Tensor]:
        return [
            tg.softmax(x, axis=1), tg.log_softmax(x, axis=1), tg.logsumexp(x, axis=1),
            tg.layer_norm(x, 50, w, w), tg.std(x, axis=1), tg.var(x, axis=0), tg.max(x, axis=1),
            tg.min(x, axis=0), tg.mean(x), tg.max(x),
        ]  # fmt: skip

    for place, (got, want) in enumerate(zip(*both(make, monkeypatch), strict=True)):
        same(got, want, 60, f"output {place}")


def test_several_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, c = values("float32", (3, 4, 5, 6)), values("float32", (4, 1, 1))

    def make() -> list[tg.Tensor]:
        y = x * c - 1.0
        return [
            y,
            y.sum((2, 3)),
            y.sum((0, 1)),
            y.sum(1),
            y.sum((0, 2)),
            y.mean(),
            y.permute(3, 0, 1, 2),
        ]

    for place, (got, want) in enumerate(zip(*both(make, monkeypatch), strict=True)):
        same(got, want, 300, f"output {place}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "uint8"])
def test_parts_of_results_add_up(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several parts of every column, columns that fill no vector, and results bound to memory.
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    rng = np.random.default_rng(3)
    array = (rng.standard_normal((1700, 503)) * 5 + 30).astype(dtype)
    x = tg.from_numpy(array)
    made = [x.sum(0), x.sum()]
    realize_all(made)
    wide = array.astype(np.result_type(array.dtype, np.float64))
    for got, axis in zip(made, (0, None), strict=True):
        want = array.sum(axis) if array.dtype.kind in "iu" else wide.sum(axis)
        rounding = 1e-6 if dtype in ("float32", "complex64") else 1e-14
        assert np.allclose(got.numpy(), want, rtol=rounding)
    again = x.sum(0).prepare()
    array[:] = array * 2
    assert np.allclose(again().numpy(), made[0].numpy() * 2, rtol=1e-6)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    x = values("float32", (300, 700))
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        y = tg.exp(x) * 0.3
        made = [y.sum(), y.sum(0), y.sum(1), tg.softmax(x, axis=1)]
        realize_all(made)
        results.append(b"".join(t.numpy().tobytes() for t in made))
    assert len(set(results)) == 1


def test_a_new_extent_or_number_needs_no_new_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiga.backends.llvm.dense.run import compile_spec

    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")

    def run(rows: int, factor: float) -> None:
        x = values("float32", (rows, 48))
        (x * factor + 1.0).sum(1).realize()

    run(10, 3.25)
    before = compile_spec.cache_info().misses
    run(11, 3.25)
    run(500, 4.5)
    assert compile_spec.cache_info().misses == before


def test_the_same_expression_again() -> None:
    """On the same operands, with other elements, on others, while results live and after."""
    array = np.full(200_000, 1.0, np.float32)
    x, other = tg.from_numpy(array), tg.full((200_000,), 4.0, dtype=tg.float32)

    def build(x):
        return x * 2.0 + 1.0

    held = [build(x).realize() for _ in range(3)]
    for number in (2.0, 3.0):
        array[:] = number
        assert build(x).numpy().tolist() == [2 * number + 1] * array.size
        assert build(other).numpy().tolist() == [9.0] * array.size
    assert all(one.numpy().tolist() == [3.0] * array.size for one in held)
    turned = tg.from_numpy(np.arange(200_000, dtype=np.float32).reshape(400, 500).T)
    for _ in range(3):
        assert np.array_equal(build(turned).numpy(), turned.numpy() * 2 + 1)


def test_execution_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    x = values("float32", (64, 1024))
    y = (x * 2.0).sum(1)
    assert y.execution is None
    y.realize()
    assert y.execution["backend"] == "cpu-llvm"
    assert y.execution["kernels"] == 1
    again = (x * 2.0).sum(1).realize()
    assert again.execution["cache_hit"]
    assert again.execution["semantic_hash"] == y.execution["semantic_hash"]
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "python")
    assert (x * 2.0).realize().execution["backend"] == "python-oracle"
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "fortran")
    with pytest.raises(tg.errors.InvalidValue, match="auto, native, python"):
        (x * 2.0).realize()


def test_sums_keep_their_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = tg.ones(20_000_000)
    assert ones.sum().item() == 20_000_000
    assert tg.ones(70_000, dtype=tg.float16).mean().item() == 1.0
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "python")
    assert tg.ones((20_000_000, 1)).sum(0).item() == 20_000_000


def test_large_outputs_are_stored_past_the_caches() -> None:
    x = np.arange(4_000_064, dtype=np.float32)
    y = tg.from_numpy(x) * 2.0 + 1.0
    np.testing.assert_array_equal(y.numpy(), x * 2 + 1)
    table = tg.from_numpy(x[:4_000_000].reshape(-1, 1000)) + 1.0
    np.testing.assert_array_equal(table.numpy(), x[:4_000_000].reshape(-1, 1000) + 1)
    again = tg.from_numpy(x[:3_999_999]) * 3.0
    np.testing.assert_array_equal(again.numpy(), x[:3_999_999] * 3)
    run = y.prepare()
    y.detach().zero_()
    np.testing.assert_array_equal(run().numpy(), x * 2 + 1)


def test_strict_sums_add_in_order() -> None:
    x = np.random.default_rng(4).standard_normal((5, 300)).astype(np.float32)
    strict = tg.from_numpy(x).sum(1).realize(strict=True)
    want = np.zeros(5, np.float32)
    for column in x.T:
        want = want + column
    np.testing.assert_array_equal(strict.numpy(), want)
    assert not strict.execution["relaxed_math"]


SHAPES = [(6, 5, 7), (3, 4, 5, 6), (2, 300, 40), (64, 1, 33), (5, 257, 2), (1, 8, 1, 9)]


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "var", "logsumexp"])
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions_over_any_axes(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = values("float32", shape)
    sets = [
        axes for count in range(1, len(shape) + 1)
        for axes in itertools.combinations(range(len(shape)), count)
    ]  # fmt: skip

    for axes in sets:
        (got,), (want,) = both(
            lambda axes=axes: [getattr(tg, name)(x * 2.0 + 1.0, axis=axes)], monkeypatch
        )
        same(got, want, 200, f"{name} over {axes} of {shape}")
        assert got.execution["library_calls"] == (), axes


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_inner_axes_of_every_dtype(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = values(dtype, (7, 90, 11))
    for got, want in zip(*both(lambda: [x.sum(1), (x * x).sum((0, 1))], monkeypatch), strict=True):
        same(got, want, 400, dtype)


def test_inner_sums_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = values("float32", (3, 5000, 33))
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        found.append((x * 1.5).sum(1).numpy())
    assert (found[0] == found[1]).all()
    exact = (x.numpy().astype(np.float64) * 1.5).sum(1)
    np.testing.assert_allclose(found[0], exact, rtol=1e-4, atol=2e-3)
    strict = (x * 1.5).sum(1).realize(strict=True).numpy()
    ordered = np.zeros((3, 33), np.float32)
    for row in range(5000):
        ordered += x.numpy()[:, row] * np.float32(1.5)
    assert (strict == ordered).all()


@pytest.mark.parametrize("name", ["any", "all", "count_nonzero"])
def test_truth_over_axes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = values("float32", (5, 70, 33))

    cases = list(itertools.product((-3.0, 1.99, 0.0), (0, 1, 2, (0, 2), (0, 1, 2))))

    def make() -> list[tg.Tensor]:
        return [getattr(tg, name)(x > limit, axis=axes) for limit, axes in cases]

    for got, want in zip(*both(make, monkeypatch), strict=True):
        assert got.dtype == want.dtype
        assert (got.numpy() == want.numpy()).all()
        assert got.execution["library_calls"] == ()


@pytest.mark.parametrize("shape", [(0, 5), (1, 4), (5, 1), (7, 33), (3, 9000)])
@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16])
def test_rows_that_are_asked_for_ahead(shape, dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    values = np.random.default_rng(0).standard_normal(shape)
    x = tg.tensor(values).astype(dtype).realize()
    y = tg.softmax(x[::-1] * 1.0, axis=1).astype(tg.float64)
    exact = x.astype(tg.float64).numpy()[::-1]
    terms = np.exp(exact - exact.max(1, keepdims=True)) if exact.size else exact
    want = terms / terms.sum(1, keepdims=True) if exact.size else exact
    np.testing.assert_allclose(y.numpy(), want, atol=1e-6 if dtype == tg.float32 else 1e-2)


REDUCED = ("sum", "mean", "var", "max", "min", "argmax", "any", "softmax")


@pytest.mark.parametrize("name", REDUCED)
def test_constants_count_once_for_every_element(name, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of what is linear are numbers, not arrays."""
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    x = tg.tensor(np.ones((5, 7)), requires_grad=True)
    constant = tg.autograd.grad((x * 3.0).sum(), x)
    function = getattr(tg, name)
    whole, rows = constant.reshape(-1), {} if name == "softmax" else {"axis": 1}
    want = tg.tensor(np.full((5, 7), 3.0))
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "python")
    expected = function(want.reshape(-1)).numpy(), function(want, **rows).numpy()
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    np.testing.assert_allclose(function(whole).numpy(), expected[0], rtol=1e-14)
    np.testing.assert_allclose(function(constant, **rows).numpy(), expected[1], rtol=1e-14)


def test_bfloat16_is_bits_to_llvm() -> None:
    """For CPUs without instructions for it LLVM would call functions that no library here has."""
    x = tg.full((3, 21), 1.5, dtype=tg.bfloat16)
    for value in (tg.exp(x), (x * 2).sum(axis=1), x[tg.tensor([2, 0])]):
        assert "bfloat" not in value.generated_code("llvm")
