"""Runs of rows of graphs in memory and in files: every row once, no more edges than asked."""

from pathlib import Path

import numpy as np
import pytest

import tiga as tg
from tiga.relations.row_blocks import PagedPointers, PointersInMemory, Rows, cut_rows

DEGREES = {
    "none": [],
    "without edges": [0] * 5,
    "one": [3],
    "gaps": [0, 0, 4, 0, 1, 0, 0],
    "a long row": [2, 9000, 0, 1],
    "many tasks": [int(d) for d in np.random.default_rng(0).integers(0, 9, 6000)],
}


@pytest.fixture(params=DEGREES, scope="module")
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PointersInMemory, PagedPointers]:
    row_ptr = np.concatenate(([0], np.cumsum(DEGREES[request.param], dtype=np.int64)))
    graph = tg.Graph.from_csr(row_ptr, np.zeros(row_ptr[-1], np.int64), num_src=1)
    path: Path = graph.save(tmp_path_factory.mktemp("g") / "g")
    return PointersInMemory(row_ptr), PagedPointers(tg.Graph.open(path).walks["dst"])


def test_files_and_memory_say_the_same(both: tuple[PointersInMemory, PagedPointers]) -> None:
    memory, paged = both
    assert paged.num_rows == memory.num_rows
    rng, end = np.random.default_rng(1), memory.start(memory.num_rows)
    for position in (0, end, end + 7, *rng.integers(0, end + 1, 50).tolist()):
        assert paged.row_at(position) == memory.row_at(position)
    for row in (0, memory.num_rows, *rng.integers(0, memory.num_rows + 1, 20).tolist()):
        assert paged.start(row) == memory.start(row)
        high = int(rng.integers(row, memory.num_rows + 1))
        assert np.array_equal(paged.between(row, high), memory.row_ptr[row : high + 1])


@pytest.mark.parametrize("most", [1, 5, 700, 10**9])
@pytest.mark.parametrize("most_rows", [1, 3, 10**9])
def test_runs_hold_every_row_once(
    both: tuple[PointersInMemory, PagedPointers], most: int, most_rows: int
) -> None:
    memory, paged = both
    runs = list(cut_rows(memory, most, most_rows))
    assert list(cut_rows(paged, most, most_rows)) == runs
    assert [run.low for run in runs] == [0, *(run.high for run in runs[:-1])]
    assert runs[-1].high == memory.num_rows
    for run in runs:
        assert (run.first, run.last) == (memory.start(run.low), memory.start(run.high))
        assert run.high - run.low <= most_rows
        assert run.last - run.first <= most or run.high - run.low == 1


def test_runs_are_as_long_as_may_be() -> None:
    pointers = PointersInMemory(np.array([0, 2, 2, 3, 3, 9, 10]))
    assert list(cut_rows(pointers, 3, 10)) == [
        Rows(0, 4, 0, 3),
        Rows(4, 5, 3, 9),
        Rows(5, 6, 9, 10),
    ]
