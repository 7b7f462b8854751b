"""Graphs in files that would fit memory too, and budgets from small to large."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import tiga as tg
from benchmarks import paged
from benchmarks.harness import Call, Contestant, Options, TimedCase
from benchmarks.processes import run_child
from benchmarks.results import TIGA, AtLeast, AtMost, Measured, spread
from tiga.runtime.tiers import parse_size

NODES = 2_000_000
FITTING = "2GiB"
BAR = AtLeast(("in memory",), 1 / 1.5)
"""At most 1.5 times the time in memory."""


def _contestants(
    sources: str, nodes: int, kernel: str
) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = paged.graph_file(folder, nodes, sources)
        graph = tg.Graph.open(path)  # and what it holds open lives on without a name
        x, w = paged.fields_of(graph)
        memory = graph.in_memory()
        own = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
    layer, seed = paged.KERNELS[kernel](), torch.ones(nodes, paged.WIDTH)

    def in_memory() -> Call:
        return lambda: paged.both(layer, memory, *own, seed)

    def in_pages() -> Call:
        def call() -> Sequence[object]:
            with tg.execution(memory={"host": FITTING}):
                found: Sequence[object] = paged.both(layer, graph, x, w, seed)
            return found

        return call

    reference = [np.asarray(g, np.float64) for g in in_memory()()]
    return reference, (Contestant(TIGA, in_pages), Contestant("in memory", in_memory))


def _shape(nodes: int = NODES, **more: object) -> Mapping[str, object]:
    return {"N": nodes, "E": nodes * paged.DEGREE, "F": paged.WIDTH, **more}


def _fitting(
    sources: str, nodes: int = NODES, kernel: str = "weighted", name: str = ""
) -> TimedCase:
    return TimedCase(
        f"paged/{name or sources}", _shape(nodes, sources=sources, budget=FITTING),
        lambda: _contestants(sources, nodes, kernel), (BAR,), 0.0,
        notes=("both gradients; the same bits",),
    )  # fmt: skip


@dataclass(frozen=True)
class BudgetCase:
    """The most anonymous memory over what was there before, in percent of the budget."""

    budget: str

    @property
    def name(self) -> str:
        return f"paged/budget/{self.budget}"

    @property
    def shape(self) -> Mapping[str, object]:
        return _shape(sources="random", budget=self.budget)

    def run(self, options: Options) -> Measured:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            arguments = ("--nodes", str(NODES), "--sources", "random", "--folder", folder)
            found = run_child("benchmarks.paged", *arguments, "--budget", self.budget, seconds=900)
        share = 100 * found["peak"] / parse_size(self.budget)
        notes = tuple(line.strip() for line in found["plans"])
        readings = {TIGA: spread([share])}
        return Measured(self.name, "%", self.shape, readings, {}, (AtMost(110.0),), notes)


CASES = (
    *(_fitting(sources) for sources in ("local", "random")),
    _fitting("local", NODES // 40, "sorted", "through torch"),
    *(BudgetCase(budget) for budget in ("64MiB", "160MiB", "512MiB", "2GiB")),
)
