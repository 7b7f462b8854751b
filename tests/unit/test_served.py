"""Functions of native tensors that are given torch tensors: torch computes the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tiga as tg
from tiga._names import SERVED
from tiga.served import CALLS

RNG = np.random.default_rng(0)
X, Y, V = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=4)
INDEX, CLASSES, MASK = np.array([2, 0, 2]), np.array([1, 0, 3]), X > 0
SAME, ALONG, POSITIVE = X, np.array([[0, 1], [3, 2], [0, 0]]), np.abs(X)

Case = Callable[[Any], Any]
"""A call with a function that makes tensors of arrays."""

CASES: dict[str, tuple[Case, ...]] = {
    "matmul": (lambda t: tg.matmul(t(X), t(V)),),
    "einsum": (lambda t: tg.einsum("ij,kj->ik", t(X), t(Y)),),
    "mse_loss": (lambda t: tg.mse_loss(t(X), t(Y), reduction="sum"),),
    "huber_loss": (lambda t: tg.huber_loss(t(X), t(Y), delta=0.5),),
    "cross_entropy": (lambda t: tg.cross_entropy(t(X), t(CLASSES)),),
    "nll_loss": (lambda t: tg.nll_loss(t(X), t(CLASSES)),),
    "binary_cross_entropy_with_logits": (
        lambda t: tg.binary_cross_entropy_with_logits(t(X), t(MASK.astype(float))),),
    "outer": (lambda t: tg.outer(t(V), t(V)),),
    "moveaxis": (lambda t: tg.moveaxis(t(X), 0, 1),),
    "transpose": (lambda t: tg.transpose(t(X), 0, 1),),
    "one_hot": (lambda t: tg.one_hot(t(CLASSES), 5),),
    "tile": (lambda t: tg.tile(t(X), (2, 1)),),
    "flatten": (lambda t: tg.flatten(t(X)),),
    "ravel": (lambda t: tg.ravel(t(X)),),
    "masked_fill": (lambda t: tg.masked_fill(t(X), t(MASK), 0.5),),
    "zeros_like": (lambda t: tg.zeros_like(t(X)),),
    "ones_like": (lambda t: tg.ones_like(t(X)),),
    "full_like": (lambda t: tg.full_like(t(X), 2.5),),
    "empty_like": (lambda t: tg.empty_like(t(X)) * 0,),
    "amax": (lambda t: tg.amax(t(X), axis=1), lambda t: tg.amax(t(X))),
    "amin": (lambda t: tg.amin(t(X), dim=0, keepdim=True),),
    "any": (lambda t: tg.any(t(MASK), axis=1), lambda t: tg.any(t(MASK))),
    "all": (lambda t: tg.all(t(MASK), axis=(0, 1), keepdims=True),),
    "argsort": (lambda t: tg.argsort(t(X), axis=0), lambda t: tg.argsort(t(X), descending=True)),
    "broadcast_to": (lambda t: tg.broadcast_to(t(V), (3, 4)),),
    "concat": (lambda t: tg.concat([t(X), t(Y)], axis=1), lambda t: tg.concat([t(X), t(V)],
               axis=None), lambda t: tg.concat((t(X), t(Y)))),
    "count_nonzero": (lambda t: tg.count_nonzero(t(MASK), axis=0),),
    "cumsum": (lambda t: tg.cumsum(t(X), 1), lambda t: tg.cumsum(t(X), dim=0, reverse=True)),
    "cumulative_prod": (lambda t: tg.cumulative_prod(t(X), axis=1, include_initial=True),),
    "cumulative_sum": (lambda t: tg.cumulative_sum(t(V)),
                       lambda t: tg.cumulative_sum(t(X), axis=0, include_initial=True)),
    "diff": (lambda t: tg.diff(t(X), axis=0, n=2), lambda t: tg.diff(t(X), prepend=t(Y))),
    "expand": (lambda t: tg.expand(t(V), 3, 4),),
    "expand_dims": (lambda t: tg.expand_dims(t(X), axis=1),),
    "flip": (lambda t: tg.flip(t(X)), lambda t: tg.flip(t(X), axis=1)),
    "gather": (lambda t: tg.gather(t(X), t(INDEX)), lambda t: tg.gather(t(X), t(INDEX), dim=1)),
    "layer_norm": (lambda t: tg.layer_norm(t(X)), lambda t: tg.layer_norm(t(X), (4,), t(V), t(V))),
    "log_softmax": (lambda t: tg.log_softmax(t(X), axis=0), lambda t: tg.log_softmax(t(X))),
    "matrix_transpose": (lambda t: tg.matrix_transpose(t(X)),),
    "nonzero": (lambda t: tg.nonzero(t(MASK))[1],),
    "norm": (lambda t: tg.norm(t(X)), lambda t: tg.norm(t(X), ord=1, axis=0, keepdims=True)),
    "pad": (lambda t: tg.pad(t(X), [(1, 0), (2, 3)], value=1.5),),
    "permute_dims": (lambda t: tg.permute_dims(t(X), (1, 0)),),
    "repeat": (lambda t: tg.repeat(t(X), 2), lambda t: tg.repeat(t(X), 2, axis=1)),
    "reshape": (lambda t: tg.reshape(t(X), (2, -1)), lambda t: tg.reshape(t(X), 4, 3)),
    "rms_norm": (lambda t: tg.rms_norm(t(X), (4,), eps=1e-6),),
    "roll": (lambda t: tg.roll(t(X), 1), lambda t: tg.roll(t(X), (1, 2), axis=(0, 1))),
    "sort": (lambda t: tg.sort(t(X)), lambda t: tg.sort(t(X), axis=0, descending=True)),
    "split": (lambda t: tg.split(t(X), [1, 3], axis=1)[1], lambda t: tg.split(t(X), 2)[0]),
    "squeeze": (lambda t: tg.squeeze(t(X[:1])), lambda t: tg.squeeze(t(X[:, :1]), axis=1)),
    "stack": (lambda t: tg.stack([t(X), t(Y)], axis=-1),),
    "take": (lambda t: tg.take(t(X), t(INDEX), axis=0), lambda t: tg.take(t(V), t(-INDEX - 1))),
    "take_along_axis": (lambda t: tg.take_along_axis(t(X), t(ALONG), axis=1),),
    "topk": (lambda t: tg.topk(t(X), 2)[1], lambda t: tg.topk(t(X), 2, axis=0, largest=False)[0]),
    "tril": (lambda t: tg.tril(t(X), k=1),),
    "triu": (lambda t: tg.triu(t(X)),),
    "unique_values": (lambda t: tg.unique_values(t(INDEX)),),
    "unsqueeze": (lambda t: tg.unsqueeze(t(X), dim=-1),),
    "unstack": (lambda t: tg.unstack(t(X), axis=1)[2],),
    "vecdot": (lambda t: tg.vecdot(t(X), t(Y), axis=0),),
}  # fmt: skip


def test_every_served_name_is_here() -> None:
    assert set(CASES) == set(CALLS) == SERVED


@pytest.mark.parametrize("name", sorted(CASES))
def test_torch_tensors_are_served_by_torch(name: str) -> None:
    for case in CASES[name]:
        got, want = case(torch.tensor), case(tg.tensor)
        assert isinstance(got, torch.Tensor), name
        assert isinstance(want, tg.Tensor), name
        assert tuple(got.shape) == want.shape
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


def test_one_edge_function_serves_both_frontends() -> None:
    class Mixed(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            both = tg.concat([src.x, dst.x], axis=-1)
            return tg.layer_norm(tg.roll(both, 1, axis=-1)) * tg.expand_dims(edge.w, axis=-1)

    graph = tg.Graph.from_coo([0, 1, 2, 0], [1, 2, 0, 0], num_dst=3)
    x, w = RNG.normal(size=(3, 4)), RNG.normal(size=4)

    def call(make: Callable[[Any], Any]) -> np.ndarray:
        nodes = {"x": make(x)}
        return Mixed()(graph=graph, src=nodes, dst=nodes, edge={"w": make(w)}).numpy()

    np.testing.assert_allclose(call(torch.tensor), call(tg.tensor), rtol=1e-9)
