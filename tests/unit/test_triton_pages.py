"""Pages of a graph in a file on a GPU, without a GPU: facts, work lists, and the interpreter."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiga as tg
from tests.interpreted import run_interpreted
from tiga.backends.triton.paged.edge_lists import edge_list
from tiga.backends.triton.paged.facts import Neighbours, walk_facts
from tiga.backends.triton.paged.link import HostLink
from tiga.backends.triton.paged.lists import Launches, work_list
from tiga.backends.triton.paged.memory import Mover
from tiga.backends.triton.topology import CHUNK, device_walk
from tiga.errors import InvalidValue
from tiga.runtime.arena import ROOMY, Arena
from tiga.runtime.cuda import torch_platform
from tiga.runtime.pages import MemoryRows

TILE = 8


def uneven(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Degrees of which some are 0, and some are those of rows that are split."""
    degree = rng.zipf(1.4, rows).clip(0, 4 * CHUNK)
    degree[rng.random(rows) < 0.2] = 0
    return degree


def pointers_of(degree: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(degree)))


@pytest.mark.parametrize("side", ["dst", "src"])
def test_the_facts_of_a_walk_in_a_file(
    side: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiga.backends.triton.paged.facts.BLOCK", 37)
    pointers = pointers_of(uneven(rng, 200))
    graph = tg.Graph.from_csr(pointers, rng.integers(0, 90, pointers[-1]), num_src=90)
    opened = tg.Graph.open(graph.save(tmp_path / "g"))
    platform = torch_platform(torch.device("cpu"))
    memory = device_walk(graph.snapshot(), side, platform)
    found = walk_facts(opened.walks[side], 90 if side == "dst" else 200)
    assert found.degrees == memory.degrees
    assert found.num_chunks == memory.num_chunks


def test_rows_that_do_not_follow_one_another(rng: np.random.Generator) -> None:
    degree = rng.integers(0, 5, 300)
    low, order = pointers_of(degree)[:-1], np.argsort(-degree, kind="stable")
    expected = np.count_nonzero((low + degree)[order][:-1] != low[order][1:])
    found = Neighbours()
    for start in range(0, 300, 41):
        found.add(low[start : start + 41], degree[start : start + 41])
    assert found.total() == expected


@pytest.mark.parametrize("overs", [("items",), ("items", "hubs"), ("whole", "chunks", "hubs")])
def test_items_cover_the_edges_of_a_page_and_fill_tiles(
    overs: tuple[str, ...], rng: np.random.Generator
) -> None:
    """A kernel would take an empty place of a tile for row 0, which lies elsewhere."""
    first, pointers = 1000, pointers_of(uneven(rng, 61)) + 5000
    launches = Launches(frozenset(overs), TILE, np.dtype(np.int32))
    work = work_list(pointers, first, launches, Arena(1 << 20))
    covered: dict[tuple[int, int], int] = {}
    for over in set(overs) - {"hubs"}:
        row, low, count = (work.array(f"item_{n}", over) for n in ("row", "low", "count"))
        assert work.counts[over] == len(row)
        assert len(row) % TILE == 0
        assert ((row >= first) & (row < first + 61)).all()
        assert (count <= CHUNK).all() or overs == ("items",)
        for place in zip(row.tolist(), low.tolist(), count.tolist(), strict=True):
            covered[place[:2]] = max(place[2], covered.get(place[:2], 0))
    assert sum(covered.values()) == pointers[-1] - pointers[0]
    hubs = np.diff(pointers) > CHUNK
    assert work.num_hubs == (np.count_nonzero(hubs) if "hubs" in overs else 0)


def test_tiles_of_edges_of_a_page_begin_within_the_first(rng: np.random.Generator) -> None:
    lead, size = 70, 128
    pointers = pointers_of(rng.integers(0, 90, 30)) + lead
    work = edge_list(pointers, 500, size, np.dtype(np.int32), Arena(1 << 20))
    heads = np.unpackbits(work.array("heads", "tiles").view(np.uint8), bitorder="little")
    full = np.flatnonzero(np.diff(pointers))
    assert np.flatnonzero(heads).tolist() == sorted({*pointers[full], pointers[-1]})
    assert work.array("full_rows", "tiles").tolist() == (full + 500).tolist()
    assert work.array("head_slot", "tiles")[0] == -1
    crossing = pointers[full] // size != (pointers[full + 1] - 1) // size
    assert work.array("hub_rows", "hubs").tolist() == (full[crossing] + 500).tolist()


@pytest.mark.parametrize("nbytes", [100, ROOMY + 3])
def test_memory_stays_pinned_as_long_as_its_rows(nbytes: int) -> None:
    """A driver takes it back with the very array that was pinned."""
    pinned: list[Any] = []

    class Watched(HostLink):
        def pin(self, memory: np.ndarray) -> int:
            pinned.append(weakref.ref(memory))
            return super().pin(memory)

    home = MemoryRows(np.arange(nbytes, dtype=np.uint8).reshape(-1, 5))
    rows = Mover(Watched(), torch_platform(torch.device("cpu"))).pin(home)
    gc.collect()
    assert pinned[0]() is not None
    assert rows.address == pinned[0]().ctypes.data
    assert np.array_equal(rows.array, home.array)  # type: ignore[attr-defined]
    del rows
    assert pinned[0]() is None


def test_the_device_of_a_graph_in_a_file(tmp_path: Path) -> None:
    path = tg.Graph.from_coo([0], [0]).save(tmp_path / "g")
    assert tg.Graph.open(path).device == "cpu"
    assert tg.Graph.open(path, device="cuda").device == "cuda:0"
    wrong: Any = "tpu"
    with pytest.raises(InvalidValue, match="cuda:N"):
        tg.Graph.open(path, device=wrong)


def test_pages_give_the_bits_of_memory_under_the_interpreter() -> None:
    sample = "files and Difference or tiles or told and 16KiB or damage or once and pinned"
    run_interpreted("tests/gpu/test_pages.py", "tests/gpu/test_kept_pages.py", "-k", sample)


def test_blocks_give_the_bits_of_memory_under_the_interpreter() -> None:
    sample = "bits and Ordered and True or drawn and file or refused or results_in_files"
    files = "tests/gpu/test_page_blocks.py", "tests/gpu/test_native_page_blocks.py"
    run_interpreted(*files, "-k", sample)
