"""`Σ w · x_src`, forward: sparse times dense, the program that libraries know best."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import scipy.sparse
import torch

from benchmarks.graphs import GRAPHS, Csr
from benchmarks.harness import Call, Contestant, TimedCase
from benchmarks.plain import weighted_sum
from benchmarks.programs import WeightedSum, tiga_graph
from benchmarks.results import AtLeast, Bar

NUM_NODES, DEGREE = 200_000, 16


def _tiga(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    kernel, relation = WeightedSum(), tiga_graph(graph)
    fields = {"src": {"x": x}, "dst": {}, "edge": {"w": w}}
    return lambda: (kernel(graph=relation, **fields),)


def _sparse_mm(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    matrix = torch.sparse_csr_tensor(
        torch.from_numpy(graph.row_ptr),
        torch.from_numpy(graph.source),
        w[:, 0],
        (graph.num_nodes, graph.num_nodes),
    )
    return lambda: (torch.sparse.mm(matrix, x),)


def _eager(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    return lambda: (weighted_sum(x, w, source, destination),)


def _compiled(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    torch._dynamo.reset()
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    run = torch.compile(weighted_sum, dynamic=False)
    return lambda: (run(x, w, source, destination),)


def _scipy(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    matrix = _matrix(graph, w.numpy()[:, 0])
    dense = x.numpy()
    return lambda: (matrix @ dense,)


def _torch_sparse(graph: Csr, x: torch.Tensor, w: torch.Tensor) -> Call:
    import torch_sparse

    matrix = torch_sparse.SparseTensor(
        rowptr=torch.from_numpy(graph.row_ptr),
        col=torch.from_numpy(graph.source),
        value=w[:, 0],
        sparse_sizes=(graph.num_nodes, graph.num_nodes),
        is_sorted=True,
    )
    return lambda: (torch_sparse.matmul(matrix, x),)


def _matrix(graph: Csr, values: np.ndarray) -> scipy.sparse.csr_matrix:
    shape = (graph.num_nodes, graph.num_nodes)
    indices = graph.source.astype(np.int32), graph.row_ptr.astype(np.int32)
    return scipy.sparse.csr_matrix((values, *indices), shape=shape)


CONTESTANTS: dict[str, tuple[Callable[[Csr, torch.Tensor, torch.Tensor], Call], str | None]] = {
    "tiga": (_tiga, None),
    "torch.sparse.mm": (_sparse_mm, None),
    "torch.compile": (_compiled, None),
    "eager": (_eager, None),
    "SciPy": (_scipy, None),
    "torch_sparse": (_torch_sparse, "torch_sparse"),
}


def _setup(kind: str, width: int) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch.manual_seed(0)
    graph = GRAPHS[kind](NUM_NODES, DEGREE)
    x, w = torch.randn(NUM_NODES, width), torch.rand(graph.num_edges, 1)
    expected = _matrix(graph, w.double().numpy()[:, 0]) @ x.double().numpy()
    contestants = [
        Contestant(name, partial(prepare, graph, x, w), requires)
        for name, (prepare, requires) in CONTESTANTS.items()
    ]
    return [expected], contestants


def _bars(width: int) -> tuple[Bar, ...]:
    if width == 1:
        return (AtLeast(("torch.sparse.mm", "SciPy"), 1.2),)
    return (AtLeast(("torch.sparse.mm",), 1.5), AtLeast(("torch.compile",), 5.0))


CASES = tuple(
    TimedCase(
        name=f"weighted_sum/{kind}/F{width}",
        shape={"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": width, "graph": kind},
        setup=partial(_setup, kind, width),
        bars=_bars(width),
    )
    for kind in ("regular", "heavy_tailed")
    for width in (1, 16, 64, 128)
)
