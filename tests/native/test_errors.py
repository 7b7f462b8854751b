"""Bad input raises errors of Tiga that name the user's line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

X = tg.tensor([1.0, 2.0], requires_grad=True)
I = tg.tensor([1, 2])  # noqa: E741  an index
Z = tg.tensor([1 + 1j], requires_grad=True)
M = tg.ones((2, 3))

CASES: dict[str, Callable[[], Any]] = {
    "a ragged list": lambda: tg.tensor([[1, 2], [3]]),
    "strings": lambda: tg.tensor(["a"]),
    "objects": lambda: tg.tensor(np.array([object()])),
    "an unknown dtype": lambda: tg.zeros(3, dtype="float99"),
    "a negative extent": lambda: tg.zeros((-1,)),
    "a fraction as extent": lambda: tg.zeros((2.5,)),
    "an axis out of range": lambda: M.sum(axis=5),
    "an axis twice": lambda: M.sum(axis=(0, 0)),
    "a fraction as axis": lambda: M.sum(axis=1.5),
    "axis and dim": lambda: M.sum(axis=1, dim=1),
    "truth of many": lambda: bool(M),
    "a condition on many": lambda: 1 if M > 0 else 0,
    "the length of a scalar": lambda: len(tg.tensor(1.0)),
    "one item of many": lambda: M.item(),
    "the gradient of integers": lambda: tg.autograd.grad(X.sum(), I),
    "integers that require gradients": lambda: tg.tensor([1], requires_grad=True),
    "a complex output without cotangent": lambda: tg.autograd.grad(Z.sum(), Z),
    "a vector without cotangent": lambda: tg.autograd.grad(X * 2, X),
    "a disconnected input": lambda: tg.autograd.grad(X.sum(), tg.ones(1, requires_grad=True)),
    "a cotangent of another shape": lambda: tg.autograd.grad(X * 2, X, grad_output=tg.ones(3)),
    "an unknown policy": lambda: tg.autograd.grad(X.sum(), X, checkpoint="never"),
    "shapes that do not broadcast": lambda: M + tg.ones((2, 2)),
    "matrices that do not fit": lambda: M @ tg.ones((2, 2)),
    "einsum extents": lambda: tg.einsum("ij,jk->ik", M, M),
    "einsum operands": lambda: tg.einsum("ij,jk->ik", M),
    "einsum labels that are no letters": lambda: tg.einsum("1j->j", M),
    "a grid without end": lambda: tg.arange(float("inf")),
    "a grid that nothing holds": lambda: tg.arange(10**30),
    "a distance that is no number": lambda: tg.huber_loss(X, X, delta="1"),
    "a reshape of another size": lambda: M.reshape(4, 4),
    "a permutation that is none": lambda: M.permute(0, 0),
    "an index out of bounds": lambda: M[5],
    "too many indices": lambda: M[0, 0, 0],
    "a take out of bounds": lambda: tg.take(M, tg.tensor([7]), axis=0).numpy(),
    "a concat that does not fit": lambda: tg.concat([M, tg.ones((3, 2))]),
    "a stack of nothing": lambda: tg.stack([]),
    "the order of complex numbers": lambda: tg.max(Z),
    "a comparison of complex numbers": lambda: Z < Z,
    "a division of integers in place": lambda: I.div_(2),
    "a shift of floats": lambda: M << 1,
    "an expansion of an extent": lambda: M.expand(2, 4),
    "a squeeze of an extent": lambda: M.squeeze(0),
    "an unknown device": lambda: tg.ones(3, device="tpu"),
    "a number that does not fit": lambda: tg.ones(3, dtype=tg.int8) + 300,
    "the hessian of a vector": lambda: tg.autograd.hessian(lambda a: a * 2, X),
    "vmap over unequal extents": lambda: tg.autograd.vmap(lambda a, b: a + b)(M, tg.ones((3, 3))),
    "a number too large for any type": lambda: tg.exp(10**30),
    "an index of ragged lists": lambda: M[[[0], [0, 1]]],
    "a list to fill with": lambda: tg.zeros(2).fill_([1.0, 2.0]),
    "an array to fill with": lambda: tg.full_like(M, np.ones(3)),
    "a fill that does not fit": lambda: tg.full((2,), 300, dtype=tg.int8),
    "more elements than memory has": lambda: tg.zeros((2**40, 2**40)),
    "no numpy array": lambda: tg.from_numpy([1.0]),
    "ragged counts of repeats": lambda: tg.repeat(M, [[1], [1, 2]]),
    "sizes of a split that are none": lambda: tg.split(M, None),
    "an extent that is no integer": lambda: tg.scatter_add(X, I, "3"),
    "positions of fewer axes": lambda: tg.take_along_axis(M, I, axis=1),
    "a fraction of diagonals": lambda: tg.diagonal(M, offset=0.5),
    "a fraction of differences": lambda: tg.diff(X, n=1.5),
    "a correction that is no number": lambda: tg.var(M, correction="1"),
    "a slope that is no number": lambda: tg.leaky_relu(X, negative_slope={}),
    "a weight that is none": lambda: tg.layer_norm(M, weight="w"),
    "an order of a norm that is none": lambda: tg.norm(X, ord="fro"),
    "an array as device": lambda: tg.ones(3, device=np.ones(3)),
    "the gradient of no function": lambda: tg.autograd.value_and_grad(3),
    "the gradient for no argument": lambda: tg.autograd.value_and_grad(tg.exp, argnums=2)(X),
    "the jacobian of no function": lambda: tg.autograd.jacobian(X, X),
    "the hessian of a number": lambda: tg.autograd.hessian(lambda a: 3, X),
    "tangents that are too few": lambda: tg.autograd.jvp(tg.exp, (X,), ()),
    "cotangents that are too many": lambda: tg.autograd.vjp(tg.exp, X)[1](X, X),
    "vmap of no function": lambda: tg.autograd.vmap(None),
    "vmap to a number": lambda: tg.autograd.vmap(lambda a: 3)(M),
    "vmap that looks at a value": lambda: tg.autograd.vmap(lambda a: float(a.sum()))(M),
    "vmap that writes": lambda: tg.autograd.vmap(lambda a: (a * 2).add_(1))(M),
    "axes for other arguments": lambda: tg.autograd.vmap(tg.exp, in_axes=(0, 0))(M),
    "a tensor that is torch's nor anybody's": lambda: tg.from_torch(X),
    "a correction of a reducer in parts": lambda: tg.var(correction=0.5),
    "a correction of a reducer as text": lambda: tg.std(correction="x"),
    "negative padding": lambda: tg.pad(M, [(-1, 0), (0, 0)]),
    "padding that is no pairs": lambda: tg.pad(M, 1),
    "a split into nothing": lambda: tg.split(M, 0),
    "a loss of all pairs": lambda: tg.mse_loss(X, tg.ones((2, 1))),
    "a loss of all pairs of logits": lambda: tg.binary_cross_entropy_with_logits(M, tg.ones(2)),
    "a class out of range": lambda: tg.cross_entropy(M, tg.tensor([5, 0])).numpy(),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    with pytest.raises(errors.TigaError, match=r"test_errors\.py:\d+"):
        CASES[name]()


def test_versions_of_the_standard_that_are_not_there_are_refused() -> None:
    x = tg.ones(1)
    assert x.__array_namespace__(api_version="2024.12") is tg
    with pytest.raises(ValueError, match=r"2024\.12, got '1999'"):
        x.__array_namespace__(api_version="1999")
    assert x.to_device("cpu") is x
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)
    with pytest.raises(errors.InvalidValue, match=r"no stream on the CPU, got 1 .*test_errors"):
        x.__dlpack__(stream=1)


def test_torch_says_that_a_tensor_is_not_its_own() -> None:
    torch = pytest.importorskip("torch")
    y = torch.ones(2)
    mixed = [
        lambda: torch.relu(X), lambda: y + X, lambda: X + y, lambda: torch.stack([y, X]),
        lambda: torch.nn.functional.linear(X, y), lambda: y[:].copy_(X),
    ]  # fmt: skip
    for call in mixed:
        with pytest.raises(errors.InvalidType, match=r"native one .*test_errors\.py:\d+.*to_torch"):
            call()
    with pytest.raises(errors.InvalidType, match=r"use tg\.relu on native"):
        torch.relu(X)
    with pytest.raises(errors.InvalidType, match=r"one of torch's .*from_torch"):
        X @ y
    assert torch.equal(torch.as_tensor(X.detach()), torch.tensor([1.0, 2.0]))
