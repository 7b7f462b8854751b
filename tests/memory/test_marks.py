"""Which numbers of a window occur, and how rows at these are stored."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiga.paging.numbers import Marks, Window
from tiga.runtime.arena import Arena
from tiga.runtime.pages import FileRows, MemoryRows, Traffic
from tiga.runtime.spill import SpillFile

SIZE = 8


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 9))
def test_runs_are_the_numbers_that_occur_in_order(used: list[bool], low: int) -> None:
    marks = Marks(low, np.array(used))
    runs = list(marks.runs(SIZE))
    found = [number for run in runs for number in run]
    assert found == (np.flatnonzero(used) + low).tolist()
    for before, after in pairwise(runs):
        assert not (isinstance(before, range) and isinstance(after, range))
    longest = max((len(run) for run in runs if isinstance(run, range)), default=0)
    assert longest == len(used) or not all(used)


def test_a_full_window_is_one_run() -> None:
    marks = Marks(5, np.ones(3 * SIZE + 1, np.bool_))
    assert list(marks.runs(SIZE)) == [range(5, 5 + 3 * SIZE + 1)]


@pytest.mark.parametrize("ends", [(0, 70_000), (1, 69_999), (9_000, 30_000), (100, 101)])
def test_rows_of_a_window_are_stored_among_others(ends: tuple[int, int], tmp_path: object) -> None:
    rng, count, low = np.random.default_rng(1), 70_000, 13
    used = rng.random(count) < 0.5
    used[slice(*ends)] = True  # a long run between scattered ones
    numbers = (np.flatnonzero(used) + low).astype(np.int32)
    marks = Marks.of(rng.permutation(numbers), low, low + count, Arena(2**20))
    block, before = rng.random((2, count + 2 * low, 3), np.float32)
    expected = before.copy()
    expected[numbers] = block[numbers - low]
    with SpillFile(tmp_path) as file:
        start = file.allocate(before.nbytes)
        on_disk = FileRows(file.fd, start, len(before), 12, Traffic(), file)
        for home in (MemoryRows(before.copy()), on_disk):
            home.write(0, before.view(np.uint8))
            Window(low, count, marks).store(home, block[:count].view(np.uint8))
            found = np.empty_like(before)
            home.read_into(0, found.view(np.uint8))
            np.testing.assert_array_equal(found, expected)
