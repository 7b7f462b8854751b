"""Extra peak memory of one forward and backward, from the kernel's own high-water mark.

The process builds its inputs and everything that a user's second call finds ready (compiled code,
the transpose), resets the high-water mark, runs once and prints the rise in bytes.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.graphs import Csr, regular
from benchmarks.plain import difference_scatter, difference_sum, with_gradient
from tiga._cli.measure import Step, rise

NUM_NODES, DEGREE, WIDTH = 20_000, 100, 64
REDUCERS = ("sum", "mean", "max", "min", "prod", "var", "std", "logsumexp")
SECOND, FOUR = "second_derivative", "four"
"""The gradient of the squared gradient of Σ y², and sum, mean, max and min together."""
RESULTS = {FOUR: 4, SECOND: 2}
"""How many arrays a program returns beside the gradient of its one input."""
USERS = {"decay": "Decay", "moments": "Moments"}
"""Reducers of `benchmarks.user_reducers`: a fold edge by edge, and one that is recognised."""
TORCH_NAME = {"max": "amax", "min": "amin", "prod": "prod", "mean": "mean", "sum": "sum"}


def _tensors(graph: Csr, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    # Near 1, so that products over a hundred messages stay finite in every type.
    x = (1 + torch.rand(graph.num_nodes, WIDTH)).to(dtype).requires_grad_()
    return x, torch.randn(graph.num_nodes, WIDTH).to(dtype)


def _floor(graph: Csr, reducer: str, dtype: torch.dtype) -> Step:
    """Allocate (and touch) what any implementation must return: the outputs and the gradient."""
    x, _ = _tensors(graph, dtype)
    return lambda: [torch.ones_like(x) for _ in range(RESULTS.get(reducer, 1) + 1)]


def _kernel(reducer: str) -> Any:
    import tiga as tg
    from benchmarks import user_reducers
    from benchmarks.programs import EdgeDifference, SquaredDifference

    if reducer == SECOND:
        return SquaredDifference()
    if reducer == FOUR:
        return EdgeDifference(tg.multi(tg.sum(), tg.mean(), tg.max(), tg.min()))
    own = getattr(user_reducers, USERS[reducer]) if reducer in USERS else getattr(tg, reducer)
    return EdgeDifference(own())


def _second(y: torch.Tensor, x: torch.Tensor) -> object:
    (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    return y.detach(), first.detach(), *torch.autograd.grad((first * first).sum(), x)


def _tiga(graph: Csr, reducer: str, dtype: torch.dtype) -> Step:
    from benchmarks.programs import tiga_graph

    kernel = _kernel(reducer)

    def step(graph: object, x: torch.Tensor, seed: torch.Tensor) -> object:
        y = kernel(graph=graph, ndata={"x": x})
        if reducer == SECOND:
            return _second(y, x)
        results = y if isinstance(y, tuple) else (y,)
        return results, torch.autograd.grad(results, x, [seed] * len(results))

    # The same program on a small graph compiles everything: sizes are run-time values.
    small = regular(100, 5)
    step(tiga_graph(small), *_tensors(small, dtype))
    relation, (x, seed) = tiga_graph(graph), _tensors(graph, dtype)
    # Topology (narrowed indices, the transpose, the plan) is counted by itself: a narrow program
    # on the same graph makes it.
    narrow = x.detach()[:, :1].clone().requires_grad_()
    step(relation, narrow, seed[:, :1].clone())
    return lambda: step(relation, x, seed)


def _torch(graph: Csr, reducer: str, dtype: torch.dtype, compiled: bool) -> Step:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    run = difference_sum if reducer == "sum" else difference_scatter(TORCH_NAME[reducer])
    both = with_gradient(torch.compile(run, dynamic=False) if compiled else run)
    x, seed = _tensors(graph, dtype)
    both(x, source, destination, seed=seed)
    return lambda: both(x, source, destination, seed=seed)


WAYS: dict[str, Callable[[Csr, str, torch.dtype], Step]] = {
    "floor": _floor,
    "tiga": _tiga,
    "eager": partial(_torch, compiled=False),
    "torch.compile": partial(_torch, compiled=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("reducer", choices=(*REDUCERS, FOUR, SECOND, *USERS))
    parser.add_argument("dtype", choices=("float32", "bfloat16", "float16", "float64"))
    options = parser.parse_args()
    graph = regular(NUM_NODES, DEGREE)
    step = WAYS[options.way](graph, options.reducer, getattr(torch, options.dtype))
    print(json.dumps({"bytes": rise(step)}))


if __name__ == "__main__":
    main()
