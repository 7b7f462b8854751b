"""Small programs that random ones were cut down to."""

from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

ag = tg.autograd


@pytest.mark.parametrize("backend", ["python", "native"])
def test_softmax_over_no_elements(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.zeros((2, 0), requires_grad=True)
    for function in (tg.softmax, tg.log_softmax):
        out = function(x, axis=1)
        assert out.numpy().shape == (2, 0)
        assert ag.grad(out.sum(), x).numpy().shape == (2, 0)
    total = tg.logsumexp(x, axis=1)
    np.testing.assert_array_equal(total.numpy(), [-np.inf, -np.inf])
    assert ag.grad(total.sum(), x).numpy().shape == (2, 0)


SHARED = {
    "product": lambda p, m: p @ m,
    "running product": lambda p, m: tg.cumulative_prod(p, axis=0),
    "largest": lambda p, m: p * tg.max(m),
    "sorted": lambda p, m: tg.sort(p) * tg.take(p, tg.tensor([0]), axis=0),
}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_all_edges_share_is_computed_before_the_walk(name: str) -> None:
    class Shared(tg.MessagePassing):
        def edge(self, src, dst, edge, p, m):
            return src.x * SHARED[name](p, m)

        def node(self, dst, aggregate, p, m):
            return aggregate + SHARED[name](p, m)

    rng = np.random.default_rng(3)
    p, m = (tg.tensor(rng.uniform(0.5, 2, n), requires_grad=True) for n in (3, (3, 3)))
    src, dst = np.array([0, 1, 1]), np.array([1, 1, 0])
    graph = tg.Graph.from_coo(src, dst, num_src=2, num_dst=2)
    x = tg.tensor(rng.uniform(0.5, 2, (2, 3)))
    got = Shared()(graph=graph, src={"x": x}, dst={"x": x}, p=p, m=m)
    rows = tg.scatter_add(tg.take(x, tg.tensor(src), axis=0) * SHARED[name](p, m), dst, 2)
    want = rows + SHARED[name](p, m)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    for ours, theirs in zip(
        ag.grad((got * got).sum(), [p, m], allow_unused=True),
        ag.grad((want * want).sum(), [p, m], allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_powers_of_integers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.tensor([-2, -1, 0, 1, 3])
    powers = {-3: [0, -1, 0, 1, 0], -2: [0, 1, 0, 1, 0], 3: [-8, -1, 0, 1, 27]}
    for exponent, want in powers.items():
        assert tg.pow(x, tg.full(5, exponent, dtype=tg.int64)).tolist() == want
    assert (2 ** tg.tensor([-1, 0, 5], dtype=tg.int8)).tolist() == [0, 1, 32]
    with pytest.raises(errors.InvalidValue, match=r"exponent of at least 0 for int64, got -1"):
        x**-1


def test_spread_of_complex_numbers_is_real() -> None:
    x = np.array([[1 + 2j, 3 - 1j], [0, 1j]])
    got = tg.std(tg.tensor(x), axis=0)
    assert got.dtype == tg.float64
    np.testing.assert_allclose(got.numpy(), x.std(0))


@pytest.mark.parametrize("backend", ["python", "native"])
def test_logsumexp_of_complex_numbers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The principal logarithm, also where the largest number has an angle beyond pi."""
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = np.array([[1 + 4j, 0.5 - 2j], [300 + 1j, -np.inf]])
    got = tg.logsumexp(tg.tensor(x), axis=1).numpy()
    np.testing.assert_allclose(got, [np.log(np.exp(x[0]).sum()), 300 + 1j], rtol=1e-12)
    share = tg.softmax(tg.tensor(x[:1]), axis=1).numpy()
    np.testing.assert_allclose(share, np.exp(x[:1]) / np.exp(x[:1]).sum(), rtol=1e-12)


def test_bools_are_close() -> None:
    x, y = tg.tensor([True, False]), tg.tensor([True, True])
    assert tg.isclose(x, y).tolist() == [True, False]
    assert tg.allclose(x, x)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_complex_numbers_become_real(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their real parts; as bools, by whether they are not 0."""
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    values = [1.5 + 2j, 3j, 0j, -2.5 - 1j]
    z = tg.tensor(values, dtype=tg.complex128, requires_grad=True)
    for dtype in (tg.float64, tg.float32, tg.float16, tg.bfloat16):
        assert (z * 1.0).astype(dtype).tolist() == [1.5, 0.0, 0.0, -2.5]
    assert (z * 1.0).astype(tg.int8).tolist() == [1, 0, 0, -2]
    assert (z * 1.0).astype(tg.bool).tolist() == [True, True, False, True]
    slope = ag.grad((z * z).astype(tg.float64).sum(), z)
    np.testing.assert_allclose(slope.numpy(), 2 * np.conj(values), rtol=1e-12)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_numbers_become_bools(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not 0 is true, fractions, NaN and imaginary numbers too."""
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.tensor([0.0, 1.0, 2.0])
    assert tg.logical_and(x, 0.5).tolist() == [False, True, True]
    assert tg.logical_or(float("nan"), x).tolist() == [True, True, True]
    assert tg.logical_xor(x, 1j).tolist() == [True, False, False]
    assert tg.where(x > 1, 0.25, x).astype(tg.bool).tolist() == [False, True, True]
    assert tg.tensor([True, False]).fill_(3).tolist() == [True, True]
    assert tg.where(x > 1, 2.75, -1.5).astype(tg.int8).tolist() == [-1, -1, 2]


X = tg.ones((2, 3))
MISTAKES = {
    "extent -1": lambda: tg.eye(-1),
    "text": lambda: tg.arange("a"),
    "list": lambda: tg.reshape([1.0], 1),
    "too far": lambda: tg.narrow(X, 1, 2, 5),
    "half a count": lambda: tg.topk(X, 1.5),
    "counts": lambda: tg.repeat(X, [1, 2], axis=1),
    "two shifts": lambda: tg.roll(X, (1, 2), axis=0),
    "size -1": lambda: tg.split(X, (4, -1), axis=1),
    "one axis": lambda: tg.tril(tg.ones(3)),
    "axis 5": lambda: tg.tensordot(X, X, axes=((0,), (5,))),
    "seven axes": lambda: tg.tensordot(X, X, axes=7),
    "no equation": lambda: tg.einsum(3, X),
    "no mask": lambda: tg.masked_fill(X, tg.tensor([1, 0, 1]), 0.0),
    "large mask": lambda: tg.masked_fill(X[0], X > 0, 0.0),
    "complex floor": lambda: tg.floor(X * 1j),
    "complex gelu": lambda: tg.gelu(X * 1j),
    "dtype that is an array": lambda: tg.zeros(2, dtype=np.ones(2)),
    "imaginary integer": lambda: tg.zeros(2, dtype=tg.int32).fill_(1j),
    "sorted matrix": lambda: tg.searchsorted(X, 1.0),
    "array as extent": lambda: tg.ones(np.ones(2)),
    "other extents": lambda: tg.layer_norm(X, (7,)),
    "no extents": lambda: tg.rms_norm(X, -1.0),
    "integers": lambda: tg.rms_norm(tg.arange(3), (3,)),
    "ragged positions": lambda: tg.take(X, [[0], [0, 1]], axis=0),
    "array as axis": lambda: tg.sum(X, axis=np.ones(2)),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_mistakes_are_explained(name: str) -> None:
    with pytest.raises(errors.TigaError, match=r"test_corner_cases\.py:\d+"):
        MISTAKES[name]()


def test_views_of_numbers_and_arrays() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert tg.reshape(array, (3, 2)).shape == (3, 2)
    assert tg.permute_dims(array, (1, 0)).tolist() == array.T.tolist()
    assert tg.expand_dims(1.0, axis=0).tolist() == [1.0]
    assert tg.zeros_like(array).dtype == tg.float64
    assert [a.shape for a in tg.broadcast_arrays(array, 1.0)] == [(2, 3), (2, 3)]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0)])
def test_a_product_of_nothing_has_a_gradient_without_elements(shape: tuple[int, ...]) -> None:
    x = tg.tensor(np.zeros(shape), requires_grad=True)
    out = tg.prod(x, axis=-1)
    assert out.tolist() == np.ones(shape[:-1]).tolist()
    slope = tg.autograd.grad(out.sum(), x)
    assert slope is not None
    assert slope.shape == shape


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_with_an_infinite_maximum_have_no_softmax(dtype: str) -> None:
    x = tg.tensor([[np.inf, 2.0], [-np.inf, -np.inf], [-np.inf, 0.0]], dtype=dtype)
    for found, last in ((tg.softmax(x), [0.0, 1.0]), (tg.log_softmax(x), [-np.inf, 0.0])):
        values = found.numpy().astype(np.float64)
        assert np.isnan(values[:2]).all()
        assert values[2].tolist() == last
    assert tg.logsumexp(x, axis=1).tolist() == [np.inf, -np.inf, 0.0]


def test_a_variance_of_fewer_elements_than_the_correction_is_none() -> None:
    for x in (tg.zeros((0,)), tg.ones((1,)), tg.zeros((0, 2)), tg.ones((1, 2))):
        assert np.isnan(tg.var(x, axis=0, correction=2).numpy()).all()
        assert np.isnan(tg.std(x, axis=0, correction=2).numpy()).all()


def test_distinct_bfloat16_beside_nan() -> None:
    x = tg.tensor([3.0, np.nan, 1.0, 3.0, 1.0, np.nan, 3.0], dtype=tg.bfloat16)
    values, indices, inverse, counts = tg.unique_all(x)
    assert values.dtype is tg.bfloat16
    assert counts.tolist() == [2, 3, 1, 1]
    assert indices.tolist() == [2, 0, 1, 5]
    assert inverse.tolist() == [1, 2, 0, 1, 0, 3, 1]


@pytest.mark.parametrize("realized", [False, True])
def test_new_axes_of_strided_views_share_storage(realized: bool) -> None:
    views = {
        "new axis": lambda z: z[:, ::2, None, 1:],
        "transposed": lambda z: z.transpose(0, 1)[None],
        "split": lambda z: z.reshape(6, 20).transpose(0, 1).reshape(2, 10, 3, 2),
        "joined": lambda z: z[::2].reshape(2, 30),
    }
    for name, view in views.items():
        z = tg.zeros((4, 6, 5)) if realized else tg.ones((4, 6, 5)) * 0
        shown = view(z.realize() if realized else z)
        shown.add_(1)
        assert z.sum().item() == shown.size, name
        assert (shown.numpy() == 1).all(), name
    moved = tg.zeros((4, 6)).transpose(0, 1).reshape(24)
    with pytest.raises(errors.InvalidValue, match="would have to move"):
        tg.zeros((4, 6)).transpose(0, 1).reshape(24, copy=False)
    assert moved.is_contiguous


def test_writes_through_a_new_axis_have_derivatives() -> None:
    w, x = tg.tensor([2.0, 3.0], requires_grad=True), tg.zeros((2, 3))
    x.transpose(0, 1)[1:2, None].copy_(tg.reshape(w * w, (1, 1, 2)))
    assert x.tolist() == [[0.0, 4.0, 0.0], [0.0, 9.0, 0.0]]
    assert ag.grad(x.sum(), w).tolist() == [4.0, 6.0]


@pytest.mark.parametrize("backend", ["python", "native"])
def test_floats_that_no_integer_holds(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.tensor([np.nan, np.inf, -np.inf, 3e9, -1.5, 300.0], dtype=tg.float32)
    low, high, wide = -(2**31), 2**31 - 1, 2**63
    assert tg.astype(x, tg.int32).tolist() == [0, high, low, high, -1, 300]
    assert tg.astype(x, tg.int64).tolist() == [0, wide - 1, -wide, 3_000_000_000, -1, 300]
    assert tg.astype(x, tg.uint8).tolist() == [0, 255, 0, 255, 255, 44]
    assert tg.astype(tg.astype(x, tg.bfloat16), tg.int8).tolist() == [0, -1, 0, -1, -1, 44]


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_losses_have_the_type_that_both_operands_promote_to(name: str) -> None:
    loss, x = getattr(tg, name), tg.tensor([0.5, 0.25])
    assert loss(x, x.astype(tg.float64)).dtype == tg.float64
    assert loss(x.astype(tg.float16), x).dtype == tg.float32
    assert loss(tg.tensor([1, 0]), x.astype(tg.bfloat16)).dtype == tg.bfloat16
    assert loss(x, tg.tensor(0.5), reduction="none").shape == (2,)


WRITES = {
    "mul_": lambda x: x.mul_(0),
    "fill_": lambda x: x.fill_(0),
    "copy_": lambda x: x.copy_(tg.zeros_like(x)),
    "a part": lambda x: x.__setitem__(slice(None), 0),
    "through a view": lambda x: x[:].zero_(),
}


@pytest.mark.parametrize("write", sorted(WRITES))
@pytest.mark.parametrize("readers", [1, 2])
def test_what_reads_a_large_value_keeps_it_when_it_is_written(write: str, readers: int) -> None:
    numbers = np.arange(1.0, 5001.0)  # more than are kept to show an expression
    value = tg.from_numpy(numbers) * 3.0
    waiting = [value + float(number) for number in range(readers)]
    WRITES[write](value)
    assert not value.numpy().any()
    for number, reader in enumerate(waiting):
        np.testing.assert_array_equal(reader.numpy(), numbers * 3.0 + number)


def _derivatives(function: Any, at: float, order: int) -> list[float]:
    x = tg.tensor(at, dtype=tg.float64, requires_grad=True)
    value, found = function(x), []
    for _ in range(order):
        value = ag.grad(value, x)
        found.append(value.item())
    return found


def test_powers_at_zero_have_derivatives_of_every_order() -> None:
    def power(exponent: float) -> Any:
        return lambda x: x ** tg.tensor(exponent, dtype=tg.float64)

    assert _derivatives(power(0.0), 0.0, 3) == [0, 0, 0]
    assert _derivatives(power(1.0), 0.0, 3) == [1, 0, 0]
    assert _derivatives(power(2.0), 0.0, 4) == [0, 2, 0, 0]
    assert _derivatives(lambda x: x**0, 0.0, 3) == [0, 0, 0]
    assert _derivatives(lambda x: tg.copysign(x, -1.0), np.inf, 1) == [-1]
    base, exponent = (tg.tensor(v, dtype=tg.float64, requires_grad=True) for v in (4.0, 0.0))
    by_base, by_exponent = ag.grad(base**exponent, [base, exponent])
    assert ag.grad(by_base, exponent).item() == ag.grad(by_exponent, base).item() == 0.25
    base, exponent = (tg.tensor(v, dtype=tg.float64, requires_grad=True) for v in (0.0, 2.0))
    (by_exponent,) = ag.grad(base**exponent, [exponent])
    assert ag.grad(by_exponent, base).item() == 0.0


def test_sums_over_many_rows_without_elements() -> None:
    for shape in ((200, 0), (0, 300), (129, 0, 2)):
        for axis in range(len(shape)):
            got = tg.sum(tg.zeros(shape), axis=axis).numpy()
            np.testing.assert_array_equal(got, np.zeros(shape).sum(axis))


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=str)
def test_gelu_of_16_bit_floats_rounds_once(dtype: tg.DType) -> None:
    x = tg.linspace(-3.5, 3.5, 57).astype(dtype).detach().requires_grad_()
    wide = tg.tensor(x.detach(), dtype=tg.float64, requires_grad=True)
    limit = 2 * tg.finfo(dtype).eps
    got, exact = tg.gelu(x), tg.gelu(wide)
    np.testing.assert_allclose(got.astype(tg.float64).numpy(), exact.numpy(), rtol=limit)
    slope, steep = ag.grad(got.sum(), x), ag.grad(exact.sum(), wide)
    np.testing.assert_allclose(
        slope.astype(tg.float64).numpy(), steep.numpy(), rtol=limit, atol=limit
    )
