"""Reducers that are folded in edge order on one GPU, beside a sum of the same messages.

    python -m benchmarks.gpu_folds

Values and gradients are compared with the CPU's first, on rows of up to 900 edges, and must have
the same bits in every run. Times are medians of device events of whole calls. `decay` goes through
each row with one program, `maps` claims to be associative: long rows are split.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

import tiga as tg
from benchmarks.gpu import HEAD, Row, extra_peak, median
from benchmarks.gpu_cases import GRAPHS, Edges, edges_of
from benchmarks.gpu_layers import REPEATS, largest_error, same_bits, step

WIDTHS = (1, 64)


class Decay(tg.Reducer):
    """Half of what was, and the message."""

    def identity(self) -> Any:
        return 0.0

    def combine(self, left: Any, right: Any) -> Any:
        return 0.5 * left + right


class Maps(tg.Reducer):
    """Maps x -> a x + b, one after the other, applied to 0."""

    associative = True

    def identity(self) -> Any:
        return 1.0, 0.0

    def lift(self, message: Any) -> Any:
        return torch.sigmoid(message), message

    def combine(self, left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    def finalize(self, state: Any) -> Any:
        return state[1]


class Weighted(tg.MessagePassing):
    """A field `x` of the source and `w` of the edge."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


def folds() -> dict[str, tg.MessagePassing]:
    return {"decay": Weighted(Decay()), "maps": Weighted(Maps())}


def called(kernel: tg.MessagePassing, graph: Any, fields: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result and both gradients."""
    x, w = fields
    forward = partial(kernel, graph=graph, ndata={"x": x}, edge={"w": w})
    return step(forward, fields, torch.ones_like(x))


def agreement_rows() -> Iterator[Row]:
    """The same call and gradients on the CPU and on the GPU."""
    edges = edges_of(torch.randint(0, 900, (600,), device="cuda"))
    drawn = torch.randn(600, 33), torch.randn(len(edges.col_idx))
    for name, kernel in folds().items():
        found = []
        for place in ("cpu", "cuda"):
            fields = [t.to(place).requires_grad_() for t in drawn]
            graph = tg.Graph.from_csr(edges.row_ptr.to(place), edges.col_idx.to(place))
            found.append(called(kernel, graph, fields))
            same = all(same_bits(found[-1], called(kernel, graph, fields)) for _ in range(REPEATS))
        wrong = largest_error([t.cpu() for t in found[1]], found[0])
        note = "" if same else "NOT REPEATABLE"
        yield Row(f"CPU and GPU {name}", "our CPU", math.nan, math.nan, math.nan, wrong, note)


def time_rows() -> Iterator[Row]:
    for name, build in GRAPHS.items():
        edges = build()
        for width in WIDTHS:
            yield from _graph_rows(name, edges, width)


def _graph_rows(name: str, edges: Edges, width: int) -> Iterator[Row]:
    """Forward, then forward and backward."""
    graph = edges.graph()
    x = torch.randn(edges.nodes, width, device="cuda", requires_grad=True)
    w = torch.randn(len(edges.col_idx), device="cuda", requires_grad=True)
    sums = Weighted(tg.sum())
    for fold, kernel in folds().items():
        forward = [
            partial(k, graph=graph, ndata={"x": x.detach()}, edge={"w": w.detach()})
            for k in (kernel, sums)
        ]
        both = [partial(called, k, graph, [x, w]) for k in (kernel, sums)]
        for what, (ours, peer) in (("forward", forward), ("step", both)):
            time = median(ours)
            note = f"extra MiB: peer {extra_peak(peer):.0f}, ours {extra_peak(ours):.0f}"
            case = f"{what} {fold} {name} F={width}"
            yield Row(case, "our sum", median(peer), time, time, 0.0, note)


def main() -> None:
    print(HEAD)
    for rows in (agreement_rows(), time_rows()):
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
