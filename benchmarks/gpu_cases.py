"""The graphs, programs and torch functions that are measured on a GPU."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tiga.ops.align import expand_to
from tiga.ops.feature import feature_sum
from tiga.ops.leaf import Input, constant
from tiga.ops.message import gather
from tiga.ops.pointwise import add, gt, maximum, mul, sub, where
from tiga.reducers import Max, Mean, Messages, Min, Softmax, Sum
from tiga.relations import Graph
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Relation, Space, Type, bfloat16, float32

NODES = Space("nodes", "node")
R = Relation("r", NODES, NODES)

# graphs


@dataclass(frozen=True)
class Edges:
    """A graph on the GPU: row pointers and sources, and the destination of every edge."""

    row_ptr: torch.Tensor
    col_idx: torch.Tensor

    @property
    def nodes(self) -> int:
        return self.row_ptr.shape[0] - 1

    @property
    def dst(self) -> torch.Tensor:
        degree = self.row_ptr.diff()
        return torch.repeat_interleave(torch.arange(self.nodes, device="cuda"), degree)

    def graph(self) -> Graph:
        return Graph.from_csr(self.row_ptr, self.col_idx, num_src=self.nodes)


def edges_of(degree: torch.Tensor) -> Edges:
    row_ptr = torch.zeros(len(degree) + 1, dtype=torch.int64, device="cuda")
    row_ptr[1:] = degree.cumsum(0)
    sources = torch.randint(0, len(degree), (int(row_ptr[-1]),), device="cuda")
    return Edges(row_ptr, sources)


def regular(nodes: int = 131072, degree: int = 16) -> Edges:
    return edges_of(torch.full((nodes,), degree, device="cuda"))


def power_law(nodes: int = 131072) -> Edges:
    """90% of rows with 8 edges, 9% with 64, 1% with 256."""
    u = torch.rand(nodes, device="cuda")
    return edges_of(torch.where(u < 0.9, 8, torch.where(u < 0.99, 64, 256)))


def heavy_tail(nodes: int = 500000) -> Edges:
    """Degrees with exponent 1.6, mean near 14, hubs of 25000."""
    u = torch.rand(nodes, device="cuda", dtype=torch.float64)
    return edges_of((5.6 * (1 - u).pow(-1 / 1.6)).long().clamp(max=nodes // 20))


def uniform(nodes: int = 200000, edges: int = 10000000) -> Edges:
    """Both ends of every edge drawn at random."""
    rows = torch.randint(0, nodes, (edges,), device="cuda")
    return edges_of(torch.bincount(rows, minlength=nodes))


GRAPHS = {"regular": regular, "power law": power_law, "heavy tail": heavy_tail}


# programs


def _gathered(width: int, dtype: DType = float32) -> tuple[Node, Node, Node]:
    x = Input("x", Type(dtype, (width,), NODES))()
    return x, gather(R, "src", x), gather(R, "dst", x)


def weighted_sum(width: int) -> Program:
    shape = (width,) if width > 1 else ()
    x, w = Input("x", Type(float32, shape, NODES))(), Input("w", Type(float32, (), R.edge))()
    message = mul(expand_to(w, shape, R.edge), gather(R, "src", x))
    return Program((x, w), (Sum().rows(Messages(R, (message,))),))


def difference(reducers: tuple, width: int = 64, dtype: DType = float32) -> Program:
    """relu(x_src - x_dst), reduced in each of the given ways."""
    x, src, dst = _gathered(width, dtype)
    step = sub(src, dst)
    message = maximum(step, constant(0, step.type))
    return Program((x,), tuple(r.rows(Messages(R, (message,))) for r in reducers))


def attention(width: int = 64) -> Program:
    """One GATv2 head: scores a . leaky_relu(x_src + x_dst), values x_src."""
    x, src, dst = _gathered(width)
    a = Input("a", Type(float32, (width,), GLOBAL))()
    z = add(src, dst)
    slope = where(gt(z, constant(0, z.type)), z, mul(z, constant(0.2, z.type)))
    score = feature_sum(mul(slope, expand_to(a, (width,), R.edge)), 0)
    return Program((x, a), (Softmax().rows(Messages(R, (score, src))),))


# torch


def peers() -> dict[str, tuple[Callable, Callable]]:
    """For each whole step: our program and the function for torch.compile (x, src, dst, n)."""

    def rows_sum(x: Any, m: Any, d: Any) -> Any:
        return torch.zeros_like(x).index_add(0, d, m)

    def reduced(kind: str) -> Callable:
        def apply(x: Any, m: Any, d: Any) -> Any:
            index = d[:, None].expand_as(m)
            start = torch.zeros_like(x)
            return start.scatter_reduce(0, index, m, kind, include_self=False)

        return apply

    def relu_step(*ways: Callable) -> Callable:
        def apply(x: Any, s: Any, d: Any) -> Any:
            message = torch.relu(x[s] - x[d])
            return tuple(way(x, message, d) for way in ways)

        return apply

    def gat(x: Any, a: Any, s: Any, d: Any) -> Any:
        score = (torch.nn.functional.leaky_relu(x[s] + x[d], 0.2) * a).sum(1)
        peak = torch.full((len(x),), -math.inf, device=x.device).scatter_reduce(0, d, score, "amax")
        p = (score - peak.detach()[d]).exp()
        total = torch.zeros(len(x), device=x.device).index_add(0, d, p)
        return (rows_sum(x, (p / total[d])[:, None] * x[s], d),)

    mean, top, low = reduced("mean"), reduced("amax"), reduced("amin")
    return {
        "relu sum": (lambda: difference((Sum(),)), relu_step(rows_sum)),
        "relu max": (lambda: difference((Max(),)), relu_step(top)),
        "relu mean": (lambda: difference((Mean(),)), relu_step(mean)),
        "relu sum+mean+max+min": (
            lambda: difference((Sum(), Mean(), Max(), Min())),
            relu_step(rows_sum, mean, top, low),
        ),
        "relu sum bf16": (lambda: difference((Sum(),), dtype=bfloat16), relu_step(rows_sum)),
        "attention": (attention, gat),
    }
