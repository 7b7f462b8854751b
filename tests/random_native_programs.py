"""Programs drawn at random on native tensors: those of `random_programs`, with ops beside that no
walk holds and some that all edges share, against the same formulas in torch."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiga as tg
from tests import random_programs as torch_side
from tests.random_tensors import UNARY as EXPRESSIONS
from tests.random_tensors import Pair
from tests.strategies import Coo, graphs

NATIVE: dict[str, Any] = {
    "neg": lambda x: -x, "sin": tg.sin, "tanh": tg.tanh, "sigmoid": tg.sigmoid, "silu": tg.silu,
    "relu": tg.relu, "square": tg.square, "ratio": lambda x: x / (1 + x * x),
    "log": lambda x: tg.log1p(abs(x)), "root": lambda x: tg.sqrt(x * x + 0.1),
    "leaky": lambda x: tg.where(x > 0, x, 0.3 * x), "first": lambda x: x[..., :1],
    "flip": lambda x: tg.flip(x, axis=-1), "total": lambda x: x.sum(-1, keepdims=True),
    "average": lambda x: x.mean(-1, keepdims=True), "largest": lambda x: x.max(-1, keepdims=True),
    "softmax": lambda x: tg.softmax(x, axis=-1), "layer_norm": lambda x: tg.layer_norm(x),
    "add": tg.add, "sub": tg.subtract, "mul": tg.multiply, "maximum": tg.maximum,
    "quotient": lambda x, y: x / (1.5 + tg.tanh(y)),
    "choice": lambda x, y: tg.where(x > y, x, 0.5 * y),
}  # fmt: skip
"""The functions of `random_programs`, under their names."""

MORE: dict[str, Pair] = {
    name: EXPRESSIONS[name] for name in ("sorted", "running product", "product", "rolled", "spread")
}
# One element, so that it broadcasts to any width.
MORE["picked"] = (lambda x: x[..., tg.tensor([-1])], lambda x: x[..., [-1]])
TORCH = {**torch_side.UNARY, **torch_side.BINARY, **{name: pair[1] for name, pair in MORE.items()}}
OURS = {**NATIVE, **{name: pair[0] for name, pair in MORE.items()}}
UNARY = sorted([*torch_side.UNARY, *MORE])


def _deeper(inner: Any) -> Any:
    return st.one_of(
        st.tuples(st.sampled_from(UNARY), inner),
        st.tuples(st.sampled_from(sorted(torch_side.BINARY)), inner, inner),
    )


expressions = st.recursive(st.sampled_from(torch_side.LEAVES), _deeper, max_leaves=5)


def evaluate(tree: Any, leaves: dict[str, Any], functions: dict[str, Any]) -> Any:
    """The value of an expression by functions of either library."""
    if isinstance(tree, str):
        return leaves[tree]
    return functions[tree[0]](*(evaluate(child, leaves, functions) for child in tree[1:]))


def kernel_of(tree: Any, reducer: str, with_matrix: bool, with_node: bool) -> tg.MessagePassing:
    def edge(self, src, dst, edge, p, matrix=None):  # type: ignore[no-untyped-def]
        value = evaluate(tree, {"src": src.x, "dst": dst.x, "edge": edge.w, "param": p}, OURS)
        if not with_matrix:
            return value
        return tg.broadcast_to(value, (*value.shape[:-1], matrix.shape[0])) @ matrix

    body: dict[str, Any] = {"reducer": getattr(tg, reducer)(), "edge": edge}
    if with_node and reducer in torch_side.NODE:
        body["node"] = lambda self, dst, aggregate: aggregate * dst.x[..., :1] + 1.0
    kernel: tg.MessagePassing = type("Drawn", (tg.MessagePassing,), body)()
    return kernel


def plain(program: Any, coo: Coo, tensors: list[torch.Tensor]) -> torch.Tensor:
    """The result by torch's own operations."""
    tree, reducer, with_matrix, with_node = program
    src, dst = map(torch.from_numpy, coo[:2])
    x, y, w, p, matrix = tensors
    messages = evaluate(tree, {"src": x[src], "dst": y[dst], "edge": w, "param": p}, TORCH)
    if with_matrix:
        messages = messages.expand(*messages.shape[:-1], len(matrix)) @ matrix
    return torch_side.reduced(messages, reducer, dst, y, with_node)


def _gradients(total: tg.Tensor, tensors: list[tg.Tensor]) -> list[tg.Tensor]:
    if not total.requires_grad:
        return [tg.zeros_like(t) for t in tensors]
    found = tg.autograd.grad(total, tensors, allow_unused=True)
    return [tg.zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)]


def derivatives(out: tg.Tensor, tensors: list[tg.Tensor], seed: int) -> list[tg.Tensor]:
    """What `random_programs.derivatives` gives, of native tensors."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).double()
    seen = tg.where(tg.isfinite(out), out, 0.0)
    first = _gradients((seen * tg.from_torch(weights)).sum(), tensors)
    parts = [(g * tg.cos(3.0 * t.detach())).sum() for g, t in zip(first, tensors, strict=True)]
    return [out, *first, *_gradients(sum(parts[1:], start=parts[0]), tensors)]


def check(bound: int | None, **program: Any) -> None:
    """Compare a program's values and two derivatives with those of torch; `bound` is the memory
    that messages may take which no walk holds."""
    with pytest.MonkeyPatch.context() as patch:
        if bound is not None:
            patch.setenv("TIGA_MEMORY_BOUND", str(bound))
        _check(**program)


def _check(
    tree: Any, reducer: str, width: int, coo: Coo, with_matrix: bool, with_node: bool, seed: int
) -> None:
    tensors = torch_side.operands(coo, width, seed, "cpu")
    native = [tg.tensor(t.detach().numpy(), requires_grad=True) for t in tensors]
    x, y, w, p, matrix = native
    graph = tg.Graph.from_coo(*coo[:2], num_src=coo[2], num_dst=coo[3])
    extra = {"matrix": matrix} if with_matrix else {}
    kernel = kernel_of(tree, reducer, with_matrix, with_node)
    got = kernel(graph=graph, src={"x": x}, dst={"x": y}, edge={"w": w}, p=p, **extra)
    want = plain((tree, reducer, with_matrix, with_node), coo, tensors)
    pairs = zip(derivatives(got, native, seed), torch_side.derivatives(want, tensors, seed),
                strict=True)  # fmt: skip
    for ours, theirs in pairs:
        values = theirs.detach()
        size = values[values.isfinite()].norm().item()  # an element may be left of larger ones
        np.testing.assert_allclose(ours.numpy(), values.numpy(force=True), rtol=0.0,
                                   atol=1e-8 * (1.0 + size))  # fmt: skip


drawn = given(
    bound=st.sampled_from((None, 300, 3000)),
    tree=expressions,
    reducer=st.sampled_from(torch_side.REDUCERS),
    width=st.sampled_from((1, 2, 5, 16)),
    coo=graphs(max_nodes=8, max_edges=30).filter(lambda coo: coo[3] > 0),
    with_matrix=st.booleans(),
    with_node=st.booleans(),
    seed=st.integers(0, 2**31),
)
