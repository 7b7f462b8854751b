"""Walks over graphs in files by blocks of rows and tiles of their other ends: the same bits as in
memory, within the budget, and chosen where they read less."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tests.memory.test_paged import (
    Attention,
    Largest,
    Layer,
    MeanOfDegrees,
    Spread,
    WeightedSum,
    results,
    same,
)
from tiga.paging.tile_plan import TilePlanner
from tiga.runtime.tiers import parse_size

torch = pytest.importorskip("torch")

NODES, EDGES, WIDTH = 1200, 20_000, 8


class Several(tg.MessagePassing):
    """A sum, a product and a minimum in one walk, and a value for each edge."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        m = src.x * edge.w[:, None] - dst.x
        return tg.multi(tg.sum(), tg.min(), tg.prod())(m), tg.each()(m), tg.edge_softmax()(m)

    def node(self, dst: Any, aggregate: Any) -> Any:
        (total, least, product), each, share = aggregate
        return total + least * product, each, share


KERNELS = [WeightedSum, Largest, MeanOfDegrees, Spread, Attention, Layer]


def edges_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    dst, src = rng.integers(0, NODES, (2, EDGES))
    if kind == "hubs":
        dst[:9_000] = 7
        src[10_000:19_000] = 11
    if kind == "gaps":
        dst, src = dst // 7 * 7, src // 3 * 3
    return src, dst


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A graph in a file whose sources ascend, by kind and width."""
    folder, known = tmp_path_factory.mktemp("tiles"), dict[Any, Any]()

    def make(kind: str, width: int = WIDTH) -> Any:
        if (kind, width) not in known:
            src, dst = edges_of(kind)
            rng = np.random.default_rng(1)
            w, x = rng.random(EDGES, np.float32), rng.random((NODES, width), np.float32)
            path = folder / f"{kind}{width}"
            tg.Graph.write_csr(
                path, [(src, dst, {"w": w})], num_nodes=NODES, fields={"src": {"x": x}},
                sort_sources=True,
            )  # fmt: skip
            known[kind, width] = tg.Graph.open(path)
        return known[kind, width]

    return make


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All walks that may go by tiles do, by several blocks and tiles."""

    def plan(stage: Any, limits: Any, spans: Any) -> Any:
        for share in (8, 4, 2, 1):
            small = replace(limits, nbytes=limits.nbytes // share)
            if found := TilePlanner(stage, small).plan():
                return found
        return None

    monkeypatch.setattr("tiga.backends.llvm.paged.steps.plan_tiles", plan)


def fields(graph: Any, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of the file; in memory if they are of another type."""
    named = graph.field("src", "x"), graph.field("edge", "w")
    x, w = (torch.from_numpy(field.numpy()).to(dtype) for field in named)
    return x, w


@pytest.mark.parametrize("kind", ["random", "hubs", "gaps"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_same_bits_as_in_memory(kernel: Any, kind: str, stored: Any, tiled: None) -> None:
    paged = stored(kind)
    expected = results(kernel(), paged.in_memory(), *fields(paged))
    layer, budget = kernel(), "3MiB"
    with tg.execution(memory={"host": budget}) as run:
        found = results(layer, paged, *fields(paged))
    assert same(found, expected)
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)
    assert "tiles of their other ends" in layer.explain()


@pytest.mark.parametrize(
    ("way", "budget"), [("rows in parts", "500KiB"), ("tiles of their other ends", "1200KiB")]
)
def test_several_reducers_and_values_of_edges(
    way: str, budget: str, stored: Any, tmp_path: Path, request: Any
) -> None:
    """Values of edges come with the rows' walk, and go to a file if they do not fit; each loop over
    a row stores its own."""
    if "tiles" in way:
        request.getfixturevalue("tiled")
    paged = stored("hubs")
    x, w = fields(paged)
    given: Any = {"ndata": {"x": x}, "edge": {"w": w}}
    expected = Several()(graph=paged.in_memory(), **given)
    layer, pages = Several(), NODES if "parts" in way else None
    with tg.execution(memory={"host": budget}, page_rows=pages, spill_dir=tmp_path):
        found = layer(graph=paged, **given)
    assert same(list(found), list(expected))
    assert way in layer.explain()
