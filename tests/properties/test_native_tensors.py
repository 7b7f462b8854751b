"""Native tensors under any sequence of views, writes and derivatives; any mix of types; extents of
0; losses of 16-bit floats."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import tiga as tg

Pair = tuple[tg.Tensor, torch.Tensor]
NUMBERS = st.sampled_from([-1.5, -0.5, 0.0, 0.25, 1.0, 2.0])


def _rows(x: Pair) -> torch.Tensor:
    """A copy in row-major order, which all results have here."""
    return x[1].clone(memory_format=torch.contiguous_format)


class Views(RuleBasedStateMachine):
    """Every rule does the same to a native tensor and to one of torch's.

    What torch would keep for its derivatives is copied first: expressions that were built before a
    write keep the old value here, where torch refuses their derivative.
    """

    tensors = Bundle("tensors")
    leaves: list[Pair]
    alive: list[Pair]

    @initialize(target=tensors, rows=st.integers(1, 4), columns=st.integers(1, 4))
    def start(self, rows: int, columns: int) -> Pair:
        self.leaves, self.alive = [], []
        return self._leaf(rows, columns)

    def _leaf(self, rows: int, columns: int) -> Pair:
        array = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns) / 4 - 1
        pair = tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
        self.leaves.append(pair)
        return self._kept(pair[0] * 2.0, pair[1] * 2.0)

    def _kept(self, mine: tg.Tensor, other: torch.Tensor) -> Pair:
        self.alive.append((mine, other))
        return mine, other

    @rule(target=tensors, rows=st.integers(0, 4), columns=st.integers(1, 4))
    def leaf(self, rows: int, columns: int) -> Pair:
        return self._leaf(rows, columns)

    @rule(target=tensors, x=tensors, start=st.integers(0, 3), stop=st.integers(0, 4),
          step=st.integers(1, 3))  # fmt: skip
    def sliced(self, x: Pair, start: int, stop: int, step: int) -> Pair:
        piece = slice(start, stop, step)
        return self._kept(x[0][piece], x[1][piece])

    @rule(target=tensors, x=tensors)
    def turned(self, x: Pair) -> Pair:
        axes = tuple(reversed(range(x[1].ndim)))
        return self._kept(x[0].permute(*axes), x[1].permute(*axes))

    @rule(target=tensors, x=tensors)
    def flattened(self, x: Pair) -> Pair:
        if not x[1].is_contiguous():
            return x
        return self._kept(x[0].reshape(-1, 1), x[1].view(-1, 1))

    @rule(target=tensors, x=tensors, number=NUMBERS)
    def scaled(self, x: Pair, number: float) -> Pair:
        return self._kept(tg.sin(x[0]) * number + x[0], _rows(x).sin() * number + _rows(x))

    @rule(target=tensors, x=tensors)
    def squared(self, x: Pair) -> Pair:
        copy = _rows(x)
        return self._kept(x[0] * x[0], copy * copy)

    @rule(x=tensors, number=NUMBERS)
    def added(self, x: Pair, number: float) -> None:
        x[0].add_(number)
        x[1].add_(number)

    @rule(x=tensors, number=NUMBERS)
    def multiplied(self, x: Pair, number: float) -> None:
        x[0].mul_(number)
        x[1].mul_(number)

    @rule(x=tensors, number=NUMBERS)
    def filled(self, x: Pair, number: float) -> None:
        x[0].fill_(number)
        x[1].fill_(number)

    @rule(x=tensors, y=tensors)
    def copied(self, x: Pair, y: Pair) -> None:
        if x[1].shape == y[1].shape:
            x[0].copy_(y[0])
            x[1].copy_(y[1].clone())

    @rule(x=tensors, y=tensors)
    def assigned(self, x: Pair, y: Pair) -> None:
        total = y[1].sum()
        x[0][0:2] = y[0].sum()
        x[1][0:2] = total

    @rule(x=tensors)
    def looked_at(self, x: Pair) -> None:
        np.testing.assert_allclose(x[0].numpy(), x[1].detach().numpy(), rtol=1e-12, atol=1e-12)

    @rule(x=tensors)
    def differentiated(self, x: Pair) -> None:
        mine = (x[0] * x[0]).sum()
        copy = x[1].clone()
        wanted = torch.autograd.grad((copy * copy).sum(), [leaf for _, leaf in self.leaves],
                                     allow_unused=True, retain_graph=True)  # fmt: skip
        found = tg.autograd.grad(mine, [leaf for leaf, _ in self.leaves], allow_unused=True)
        for got, want in zip(found, wanted, strict=True):
            there = np.float64(0) if want is None else want.numpy()
            here = np.float64(0) if got is None else got.numpy()
            np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-10)

    @invariant()
    def layouts_agree(self) -> None:
        for mine, other in getattr(self, "alive", ()):
            assert mine.shape == tuple(other.shape)
            assert mine.is_contiguous == other.is_contiguous()

    def teardown(self) -> None:
        for mine, other in getattr(self, "alive", ()):
            want = other.detach().numpy()
            np.testing.assert_allclose(mine.numpy(), want, rtol=1e-12, atol=1e-12)


TestViews = Views.TestCase
TestViews.settings = settings(max_examples=60, stateful_step_count=20, deadline=None,
                              suppress_health_check=list(HealthCheck))  # fmt: skip

DTYPES = [
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


def dtype_of(dtype: torch.dtype) -> Any:
    dtype = torch.complex64 if dtype == torch.complex32 else dtype
    return getattr(tg, str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_mixed_types_are_torch_s(left: torch.dtype) -> None:
    for right in DTYPES:
        want = dtype_of(torch.promote_types(left, right))
        assert tg.result_type(dtype_of(left), dtype_of(right)) == want, f"{left} and {right}"
        a, b = tg.ones(2, dtype=dtype_of(left)), tg.ones((3, 1), dtype=dtype_of(right))
        if torch.bool not in (left, right):
            assert (a + b).dtype == want
            assert tg.concat([a, b[:, 0]]).dtype == want
    for number in (True, 2, 0.5, 1j):
        want = dtype_of(torch.result_type(torch.ones(2, dtype=left), number))
        assert tg.result_type(tg.ones(2, dtype=dtype_of(left)), number) == want, f"{left}, {number}"


EXTENTS = st.lists(st.integers(0, 3), min_size=0, max_size=3).map(tuple)


def _broadcastable(shape: tuple[int, ...], kept: list[bool]) -> tuple[int, ...]:
    return tuple(n if keep else 1 for n, keep in zip(shape, kept, strict=False))


@settings(max_examples=60, deadline=None)
@given(shape=EXTENTS, left=st.lists(st.booleans(), min_size=3, max_size=3),
       right=st.lists(st.booleans(), min_size=3, max_size=3),
       lead=st.integers(0, 3), native=st.booleans())  # fmt: skip
def test_broadcasts_and_reductions_with_extents_of_0(
    shape: tuple[int, ...], left: list[bool], right: list[bool], lead: int, native: bool
) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(_broadcastable(shape, left))
    b = rng.standard_normal(_broadcastable(shape, right)[min(lead, len(shape)) :])
    with pytest.MonkeyPatch.context() as patch:
        if native:
            patch.setenv("TIGA_TENSOR_BACKEND", "native")
        x, y = tg.tensor(a, requires_grad=True), tg.tensor(b, requires_grad=True)
        total = tg.exp(x) * y
        np.testing.assert_allclose(total.numpy(), np.exp(a) * b, rtol=1e-12)
        for axis in range(total.ndim):
            for name in ("sum", "prod", "any"):
                got = getattr(tg, name)(total, axis=axis).numpy()
                np.testing.assert_allclose(got, getattr(np, name)(np.exp(a) * b, axis=axis),
                                           rtol=1e-12, atol=1e-12)  # fmt: skip
            scan = tg.cumulative_sum(total, axis=axis).numpy()
            np.testing.assert_allclose(scan, np.cumsum(np.exp(a) * b, axis=axis), rtol=1e-12,
                                       atol=1e-12)  # fmt: skip
            nothing = tg.take(total, tg.zeros(0, dtype=tg.int64), axis=axis)
            assert nothing.numpy().size == 0
        one, other = tg.autograd.grad(total.sum(), [x, y])
    s, t = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    wanted = torch.autograd.grad((s.exp() * t).sum(), [s, t])
    np.testing.assert_allclose(one.numpy(), wanted[0].numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(other.numpy(), wanted[1].numpy(), rtol=1e-12, atol=1e-12)


LOSSES: dict[str, tuple[Any, Any]] = {
    "mse": (lambda x, y: tg.mse_loss(x, y), torch.nn.functional.mse_loss),
    "huber": (lambda x, y: tg.huber_loss(x, y), torch.nn.functional.huber_loss),
    "bce": (lambda x, y: tg.binary_cross_entropy_with_logits(x, y),
            torch.nn.functional.binary_cross_entropy_with_logits),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LOSSES))
@settings(max_examples=20, deadline=None)
@given(rows=st.sampled_from([1, 3, 700, 5000]), scale=st.sampled_from([0.01, 1.0, 100.0]),
       half=st.booleans())  # fmt: skip
def test_losses_of_16_bit_floats(name: str, rows: int, scale: float, half: bool) -> None:
    """Within two roundings of the exact loss of the same 16-bit numbers: sums do not stall."""
    dtype = torch.float16 if half else torch.bfloat16
    generator = torch.Generator().manual_seed(rows)
    x = (torch.randn(rows, 8, generator=generator) * scale).to(dtype)
    y = torch.rand(rows, 8, generator=generator).to(dtype)
    mine, wanted = LOSSES[name]
    exact = wanted(x.double(), y.double()).item()
    got = mine(tg.from_torch(x), tg.from_torch(y))
    assert got.dtype == dtype_of(dtype)
    eps = torch.finfo(dtype).eps
    assert abs(float(got.item()) - exact) <= 2 * eps * abs(exact) + torch.finfo(dtype).tiny


@settings(max_examples=20, deadline=None)
@given(rows=st.sampled_from([1, 5, 3000]), classes=st.sampled_from([2, 7, 300]),
       half=st.booleans())  # fmt: skip
def test_cross_entropy_of_16_bit_floats(rows: int, classes: int, half: bool) -> None:
    dtype = torch.float16 if half else torch.bfloat16
    generator = torch.Generator().manual_seed(classes)
    x = (torch.randn(rows, classes, generator=generator) * 8).to(dtype)
    label = torch.randint(classes, (rows,), generator=generator)
    exact = torch.nn.functional.cross_entropy(x.double(), label).item()
    logits = tg.from_torch(x).detach().requires_grad_()
    loss = tg.cross_entropy(logits, tg.from_torch(label))
    assert abs(float(loss.item()) - exact) <= 4 * torch.finfo(dtype).eps * abs(exact) + 1e-6
    slope = tg.autograd.grad(loss, logits)
    leaf = x.double().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, label).backward()
    limit = 4 * torch.finfo(dtype).eps / rows
    np.testing.assert_allclose(slope.to_torch().double().numpy(), leaf.grad.numpy(), atol=limit)
