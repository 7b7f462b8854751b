"""Rows in files by range and by number, memory for pages, and numbering anew, against numpy."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiga.paging.numbers import Marks, Picks, Window, bounds_of, pick
from tiga.relations.spread import core_of, distinct
from tiga.runtime.arena import ALIGNMENT, Arena, ArenaFull
from tiga.runtime.pages import Damaged, FileRows, MemoryRows, Traffic, picking, scratch_bytes

COUNT = 5000
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "rows", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def rows_in(fd: int, width: int) -> tuple[FileRows, np.ndarray]:
    """Rows of `width` bytes in the file after a header, and a copy of them."""
    values = np.random.default_rng(width).integers(0, 256, (COUNT, width), np.uint8)
    os.pwrite(fd, values.tobytes(), 24)
    return FileRows(fd, 24, COUNT, width, Traffic(), None), values


def some_ids(shares: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    count = max(1, int(COUNT * shares))
    return np.sort(rng.choice(COUNT, count, replace=False)).astype(np.int64)


@SLOW
@given(st.sampled_from([1, 2, 4, 8, 12, 128]), st.floats(0.0003, 1), st.integers(0, 99))
def test_rows_of_a_file_by_number(file: int, width: int, share: float, seed: int) -> None:
    home, values = rows_in(file, width)
    ids, scratch = some_ids(share, seed), np.empty(scratch_bytes(width), np.uint8)
    for rows in (home, MemoryRows(values.copy())):
        found = np.empty((len(ids), width), np.uint8)
        rows.take(ids, found, scratch)
        assert np.array_equal(found, values[ids])
        rows.put(ids, 255 - values[ids])
        values_after = values.copy()
        values_after[ids] = 255 - values[ids]
        whole = np.empty_like(values)
        rows.read_into(0, whole)
        assert np.array_equal(whole, values_after)
    assert np.array_equal(home.loaded().array, values_after)


@SLOW
@given(
    st.integers(1, 3000), st.integers(1, 100_000), st.integers(0, 500), st.integers(0, 99),
    st.sampled_from([np.int32, np.int64]),
)  # fmt: skip
def test_numbers_are_replaced_by_places(
    edges: int, window: int, base: int, seed: int, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, window, edges).astype(dtype)
    original = numbers.copy()
    low, high = bounds_of(numbers, window)
    picks = pick(numbers, low, high, base, Arena(2**21), high - low)
    expected, places = np.unique(original, return_inverse=True)
    assert picks.count == len(expected)
    assert np.array_equal(np.concatenate(list(picks.ids.tiles(100))), expected)
    assert np.array_equal(numbers, places + base)


def test_picks_and_windows_fill_and_store(file: int) -> None:
    home, values = rows_in(file, 16)
    numbers = np.random.default_rng(0).integers(100, 4000, 900).astype(np.int32)
    used = np.unique(numbers)
    low, high = bounds_of(numbers, COUNT)
    arena = Arena(2**20)
    window = Window(low, high - low, Marks.of(numbers, low, high, arena))
    whole = np.empty((window.count, 16), np.uint8)
    window.fill(home, whole, arena)
    assert np.array_equal(whole, values[low:high])
    window.store(home, 255 - whole)
    values[used] = 255 - values[used]
    picks = pick(numbers, low, high, 0, arena, high - low)
    block = np.empty((picks.count, 16), np.uint8)
    picks.fill(home, block, arena)
    assert np.array_equal(block, values[used])
    picks.store(home, 255 - block)
    values[used] = 255 - values[used]
    home.read_into(0, whole := np.empty_like(values))
    assert np.array_equal(whole, values)


def test_many_rows_are_picked_by_several_threads(file: int) -> None:
    count, width = 200_000, 4
    values = np.arange(count, dtype=np.int32)
    os.pwrite(file, values.tobytes(), 0)
    home = FileRows(file, 0, count, width, Traffic(), None)
    numbers = np.random.default_rng(0).integers(0, count, 150_000)
    arena = Arena(2**23)
    picks = pick(numbers, 0, count, 0, arena, count)
    block = np.empty((picks.count, width), np.uint8)
    picks.fill(home, block, arena)
    assert isinstance(picks, Picks)
    assert np.array_equal(
        block.view(np.int32).reshape(-1)[:10], np.unique(block.view(np.int32))[:10]
    )
    short = FileRows(file, 4 * count - 40, count, width, Traffic(), None)
    with pytest.raises(Damaged):
        picks.fill(short, block, arena)


def test_an_index_outside_is_damage() -> None:
    assert bounds_of(np.empty(0, np.int32), 3) == (0, 0)
    for numbers in ([0, 3], [-1, 2]):
        with pytest.raises(Damaged):
            bounds_of(np.array(numbers), 3)


def test_an_arena_hands_out_what_it_has() -> None:
    arena = Arena(1024)
    first, second = arena.take(3, np.dtype(np.int8)), arena.rows(4, 16)
    assert second.ctypes.data - first.ctypes.data == ALIGNMENT
    first[:], second[:] = 1, 2
    assert first.tolist() == [1, 1, 1]
    with pytest.raises(ArenaFull):
        arena.take(1024, np.dtype(np.int8))
    arena.reset()
    assert arena.take(1024, np.dtype(np.int8)).nbytes == 1024


def test_predictions_of_random_draws(file: int) -> None:
    rng = np.random.default_rng(1)
    for edges in (100, 5000, 50_000):
        found = len(np.unique(rng.integers(0, 10_000, edges)))
        assert distinct(10_000, edges) == pytest.approx(found, rel=0.05)
    assert picking(0, 10, 4) == (0, 0)
    home, _ = rows_in(file, 512)
    for share in (0.005, 0.02, 0.1):
        ids = some_ids(share, 3)
        home.traffic.read = 0
        out = np.empty((len(ids), 512), np.uint8)
        home.take(ids, out, np.empty(scratch_bytes(512), np.uint8))
        rows, _ = picking(len(ids), COUNT, 512)
        assert home.traffic.read == pytest.approx(rows * 512, rel=0.3)


def test_the_core_leaves_a_few_far_numbers_out(file: int) -> None:
    numbers = np.random.default_rng(0).integers(50_000, 51_000, 4000).astype(np.int32)
    numbers[::100] = np.random.default_rng(1).integers(0, 1_000_000, 40)
    os.pwrite(file, numbers.tobytes(), 0)
    home = FileRows(file, 0, 4000, 4, Traffic(), None)
    core = core_of(home, np.dtype(np.int32), (0, 4000), 0, 1_000_000)
    assert 49_000 < core.low < core.high < 52_000
    assert 20 < core.outside < 1200
    everywhere = np.random.default_rng(0).integers(0, 1_000_000, 4000).astype(np.int32)
    os.pwrite(file, everywhere.tobytes(), 0)
    core = core_of(home, np.dtype(np.int32), (0, 4000), 0, 1_000_000)
    assert core.size == 1_000_000
