"""Reducers that users write: an online softmax beside tiga's own, and products of 2×2 matrices."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

import tiga as tg
from benchmarks.graphs import Csr, uniform
from benchmarks.harness import Call, Contestant, TimedCase, relative_norm
from benchmarks.programs import Attention, tiga_graph
from benchmarks.results import AtLeast
from benchmarks.user_reducers import InOrder, MatrixProduct, OnlineSoftmax, Turns, padded_product

NUM_NODES, DEGREE, HEADS, CHANNELS = 50_000, 20, 4, 16
HUB = 1_000_000
"""Edges of the one long row."""

Run = Callable[..., torch.Tensor]


def _step(run: Run, inputs: Sequence[torch.Tensor], seed: torch.Tensor) -> Call:
    """Forward, and the gradients to all inputs."""

    def step() -> Sequence[object]:
        out = run(*inputs)
        return out.detach(), *torch.autograd.grad(out, inputs, seed)

    return step


def _wide(run: Run, inputs: Sequence[torch.Tensor], seed: torch.Tensor) -> list[np.ndarray]:
    """The right answer, in float64."""
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    return [np.asarray(part) for part in _step(run, wide, seed.double())()]


# attention


def _attend(graph: Csr, inputs: Sequence[torch.Tensor], seed: torch.Tensor, own: bool) -> Call:
    kernel, relation = Attention(), tiga_graph(graph)
    kernel.reducer = tg.softmax() if own else OnlineSoftmax()

    def run(a: torch.Tensor, b: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = kernel(graph=relation, src={"score": a, "value": h}, dst={"score": b})
        return out

    return _step(run, inputs, seed)


def _attention() -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch.manual_seed(0)
    graph = uniform(NUM_NODES, DEGREE)
    shapes = (NUM_NODES, HEADS), (NUM_NODES, HEADS), (NUM_NODES, HEADS, CHANNELS)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    seed = torch.randn(NUM_NODES, HEADS, CHANNELS)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    reference = [np.asarray(part) for part in _attend(graph, wide, seed.double(), own=True)()]
    ways = {"tiga": False, "tg.softmax": True}
    return reference, [
        Contestant(name, partial(_attend, graph, inputs, seed, own)) for name, own in ways.items()
    ]


# matrix products


def _turns(
    graph: Csr, inputs: Sequence[torch.Tensor], seed: torch.Tensor, reducer: tg.Reducer
) -> Call:
    kernel, relation = Turns(reducer), tiga_graph(graph)

    def run(m: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = kernel(graph=relation, src={"m": m}, edge={"w": w})
        return out

    return _step(run, inputs, seed)


def _slots(graph: Csr) -> torch.Tensor:
    """The edges of each row, -1 for none, padded to a power of two."""
    degrees = np.diff(graph.row_ptr)
    width = 1 << int(degrees.max() - 1).bit_length()
    place = np.arange(width)
    slots = np.where(place < degrees[:, None], graph.row_ptr[:-1, None] + place, -1)
    return torch.from_numpy(slots)


def _plain(graph: Csr) -> Run:
    source, slots = torch.from_numpy(graph.source), _slots(graph)
    return lambda m, w: padded_product(m[source], w, slots)


def _compiled(graph: Csr, inputs: Sequence[torch.Tensor], seed: torch.Tensor) -> Call:
    return _step(torch.compile(_plain(graph), dynamic=False), inputs, seed)


def _matrices(hub: bool) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = _one_hub() if hub else uniform(NUM_NODES, DEGREE)
    m = torch.randn(graph.num_nodes, 2, 2, requires_grad=True)
    w = (0.3 * torch.randn(graph.num_edges) / np.diff(graph.row_ptr).max() ** 0.5).requires_grad_()
    seed = torch.randn(graph.num_nodes, 2, 2)
    data = (graph, [m, w], seed)
    ours = Contestant("tiga", partial(_turns, *data, MatrixProduct()))
    if hub:
        others = [Contestant("not associative", partial(_turns, *data, InOrder()))]
    else:
        others = [Contestant("torch.compile", partial(_compiled, *data))]
    return _wide(_plain(graph), [m, w], seed), [ours, *others]


def _one_hub() -> Csr:
    """One row of many edges, and one of a single edge."""
    rng = np.random.default_rng(0)
    return Csr(2, np.array([0, HUB, HUB + 1]), rng.integers(0, 2, HUB + 1))


EDGES = NUM_NODES * DEGREE
CASES = (
    TimedCase(
        name="user_reducers/online_softmax",
        shape={"N": NUM_NODES, "E": EDGES, "heads": HEADS, "channels": CHANNELS},
        setup=_attention,
        bars=(AtLeast(("tg.softmax",), 0.9),),
        tolerance=1e-3,
        error=relative_norm,
        notes=("recognised as the sums of tg.softmax",),
    ),
    TimedCase(
        name="user_reducers/matrix_product",
        shape={"N": NUM_NODES, "E": EDGES, "matrices": "2x2"},
        setup=partial(_matrices, hub=False),
        bars=(AtLeast(("torch.compile",), 2.0),),
        tolerance=1e-3,
        error=relative_norm,
        notes=("torch pads rows to the next power of two and multiplies by halves",),
    ),
    TimedCase(
        name="user_reducers/matrix_product_hub",
        shape={"N": 2, "E": HUB + 1, "matrices": "2x2"},
        setup=partial(_matrices, hub=True),
        bars=(AtLeast(("not associative",), 1.0),),
        tolerance=1e-2,
        error=relative_norm,
        notes=("one row holds all edges but one",),
    ),
)
