"""Graphs in files whose files, disks or budgets give out during a call: an error that says so, and
nothing left charged, open or running."""

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidFile

torch = pytest.importorskip("torch")

NODES, EDGES, WIDTH = 3000, 30_000, 8


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    dst = np.sort(rng.integers(0, NODES, EDGES))
    graph = tg.Graph.from_coo((dst + rng.integers(0, 40, EDGES)) % NODES, dst, num_src=NODES)
    x, w = rng.random((NODES, WIDTH), np.float32), rng.random(EDGES, np.float32)
    given = {"src": {"x": x}, "edge": {"w": w}}
    return graph.save(tmp_path_factory.mktemp("graph") / "g", given)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No threads; those of earlier tests may end meanwhile."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No cycles are looked for: what an error held is free when the error is."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("budget", ["300KiB", "3MiB"])
def test_a_file_that_was_cut_after_it_was_opened(
    share: float, budget: str, stored: Path, tmp_path: Path, uncollected: None
) -> None:
    path = tmp_path / "g"
    path.write_bytes(stored.read_bytes())
    paged, other = tg.Graph.open(path), tg.Graph.open(path)
    x, w = (torch.from_numpy(paged.field(*n).numpy()) for n in (("src", "x"), ("edge", "w")))
    kernel = Weighted()
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        kernel(graph=paged, src={"x": x}, edge={"w": w})
        os.truncate(path, int(share * path.stat().st_size))
        with pytest.raises(InvalidFile, match="too early"):
            kernel(graph=paged, src={"x": x}, edge={"w": w})
        with pytest.raises(InvalidFile, match="too early"):
            kernel(graph=other, src=other.fields["src"], edge=other.fields["edge"])
        assert not any(run.memory_report()["live_bytes"].values())


def test_a_file_that_was_removed_after_it_was_opened(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "g"
    path.write_bytes(stored.read_bytes())
    paged = tg.Graph.open(path)
    path.unlink()
    found = Weighted()(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
    whole = tg.Graph.open(stored)
    assert torch.equal(
        found, Weighted()(graph=whole, src=whole.fields["src"], edge=whole.fields["edge"])
    )
