"""Expressions of native tensors drawn at random: values, gradients and gradients of gradients,
against torch. Extents may be 0, and several ops write in place."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import tiga as tg

Pair = tuple[Callable[..., Any], Callable[..., Any]]


def _filled(native: Any, other: Any) -> Pair:
    """Functions that need elements along the last axis; they leave tensors without any alone."""

    def unless_empty(function: Any) -> Callable[..., Any]:
        return lambda x: x if 0 in x.shape[-1:] else function(x)

    return unless_empty(native), unless_empty(other)


def _written(x: Any) -> Any:
    copy = x * 1.0
    copy[..., :1] = 0.5
    copy[..., ::2].mul_(3.0)
    copy.add_(x)
    return copy


UNARY: dict[str, Pair] = {
    "neg": (lambda x: -x, torch.neg),
    "sin": (tg.sin, torch.sin),
    "tanh": (tg.tanh, torch.tanh),
    "gelu": (tg.gelu, torch.nn.functional.gelu),
    "ratio": (lambda x: x / (1 + x * x), lambda x: x / (1 + x * x)),
    "root": (lambda x: tg.sqrt(x * x + 0.1), lambda x: torch.sqrt(x * x + 0.1)),
    "clip": (lambda x: tg.clip(x, -0.5, 0.9), lambda x: x.clip(-0.5, 0.9)),
    "halves": (lambda x: x[..., ::2], lambda x: x[..., ::2]),
    "backwards": (lambda x: x[..., ::-1], lambda x: x.flip(-1)),
    "turned": (lambda x: (x.mT * 2.0).mT if x.ndim > 1 else x,
               lambda x: (x.mT * 2.0).mT if x.ndim > 1 else x),
    "padded": (lambda x: tg.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 2)], value=0.5),
               lambda x: torch.nn.functional.pad(x, (1, 2), value=0.5)),
    "rolled": (lambda x: tg.roll(x, 2, axis=-1), lambda x: x.roll(2, -1)),
    "joined": (lambda x: tg.concat([x, x * x], axis=-1), lambda x: torch.cat([x, x * x], -1)),
    "total": (lambda x: x.sum(-1, keepdims=True), lambda x: x.sum(-1, keepdim=True)),
    "product": (lambda x: tg.prod(tg.tanh(x), axis=-1, keepdims=True),
                lambda x: x.tanh().prod(-1, keepdim=True)),
    "running sum": (lambda x: tg.cumulative_sum(x, axis=0), lambda x: x.cumsum(0)),
    "running product": (lambda x: tg.cumulative_prod(tg.sin(x), axis=-1),
                        lambda x: x.sin().cumprod(-1)),
    "softmax": (lambda x: tg.softmax(x, axis=-1), lambda x: x.softmax(-1)),
    "log softmax": (lambda x: tg.log_softmax(x, axis=0), lambda x: x.log_softmax(0)),
    "sorted": (lambda x: tg.sort(x, axis=-1), lambda x: x.sort(-1)[0]),
    "written": (_written, _written),
    "gram": (lambda x: tg.tanh(x) @ tg.tanh(x).mT @ x if x.ndim > 1 else x,
             lambda x: x.tanh() @ x.tanh().mT @ x if x.ndim > 1 else x),
    "einsum": (lambda x: tg.einsum("...i,...j->...i", x, x),
               lambda x: torch.einsum("...i,...j->...i", x, x)),
    "largest": _filled(lambda x: x.max(-1, keepdims=True), lambda x: x.amax(-1, keepdim=True)),
    "average": _filled(lambda x: x.mean(-1, keepdims=True), lambda x: x.mean(-1, keepdim=True)),
    "spread": _filled(lambda x: tg.var(x, axis=-1, keepdims=True),
                      lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)),
    "picked": _filled(lambda x: x[..., tg.tensor([0, -1, 0], device=x.device)],
                      lambda x: x[..., [0, -1, 0]]),
    "norm": _filled(lambda x: tg.layer_norm(x, eps=0.1),
                    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0.1)),
}  # fmt: skip
BINARY: dict[str, Pair] = {
    "add": (tg.add, torch.add),
    "sub": (tg.subtract, torch.sub),
    "mul": (tg.multiply, torch.mul),
    "maximum": (tg.maximum, torch.maximum),
    "quotient": (lambda x, y: x / (1.5 + tg.tanh(y)), lambda x, y: x / (1.5 + y.tanh())),
    "choice": (lambda x, y: tg.where(x > y, x, 0.5 * y), lambda x, y: torch.where(x > y, x, y / 2)),
    "power": (lambda x, y: (1.5 + tg.sin(x)) ** tg.cos(y),
              lambda x, y: (1.5 + x.sin()) ** y.cos()),
    "logaddexp": (tg.logaddexp, torch.logaddexp),
}  # fmt: skip
LEAVES = ("matrix", "row", "column")


def _deeper(inner: Any) -> Any:
    return st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), inner),
        st.tuples(st.sampled_from(sorted(BINARY)), inner, inner),
    )


expressions = st.recursive(st.sampled_from(LEAVES), _deeper, max_leaves=5)


def evaluate(tree: Any, leaves: dict[str, Any], side: int) -> Any:
    """The value of an expression; `side` is 0 for native tensors, 1 for torch."""
    if isinstance(tree, str):
        return leaves[tree]
    function = {**UNARY, **BINARY}[tree[0]][side]
    parts = [evaluate(child, leaves, side) for child in tree[1:]]
    widths = {part.shape[-1] for part in parts}
    if len(widths) == 2 and 1 not in widths:
        parts[1] = UNARY["total"][side](parts[1])
    return function(*parts)


def _close(got: tg.Tensor | None, want: torch.Tensor) -> None:
    want = want.detach()
    if got is None:  # it does not depend on the operand: some versions of torch give zeros then
        assert not want.any()
        return
    assert got.dtype == tg.float64
    assert got.shape == tuple(want.shape)
    size = want.norm().item()  # an element may be what is left of larger ones
    np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=0, atol=1e-8 * (1 + size))


def check(tree: Any, rows: int, width: int, seed: int, device: str = "cpu") -> None:
    """Compare an expression's value and two derivatives with those of torch."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape) for shape in ((rows, width), (width,), (rows, 1))]
    native = [tg.tensor(array, requires_grad=True, device=device) for array in arrays]
    other = [torch.tensor(array, requires_grad=True) for array in arrays]
    got = evaluate(tree, dict(zip(LEAVES, native, strict=True)), 0)
    want = evaluate(tree, dict(zip(LEAVES, other, strict=True)), 1)
    assume(bool(want.isfinite().all()) and float(want.detach().norm()) < 1e6)
    weights = rng.standard_normal(want.shape)
    total = (got * tg.tensor(weights, device=device)).sum()
    wanted = (want * torch.tensor(weights)).sum()
    first = tg.autograd.grad(total, native, allow_unused=True)
    slopes = torch.autograd.grad(wanted, other, create_graph=True, allow_unused=True)
    _close(got, want)
    pairs = [(g, s, x) for g, s, x in zip(first, slopes, arrays, strict=True) if s is not None]
    for found, slope, _ in pairs:
        _close(found, slope)
    curved = [(g, s, np.cos(3 * x)) for g, s, x in pairs if g is not None and s.requires_grad]
    if not curved:
        return
    again = sum((g * tg.tensor(c, device=device)).sum() for g, _, c in curved)
    bends = torch.autograd.grad(sum((s * torch.tensor(c)).sum() for _, s, c in curved), other,
                                allow_unused=True)  # fmt: skip
    if not again.requires_grad:
        assert all(bend is None or not bend.any() for bend in bends)
        return
    for found, bend in zip(tg.autograd.grad(again, native, allow_unused=True), bends, strict=True):
        if found is None:
            assert bend is None or not bend.any()
        else:
            _close(found, torch.zeros(found.shape) if bend is None else bend)


drawn = given(
    tree=expressions, rows=st.integers(0, 4), width=st.integers(0, 5), seed=st.integers(0, 2**31)
)
