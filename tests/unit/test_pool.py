"""Memory that is used again: whose it is, where arrays start in it, and how much waits."""

import numpy as np
import pytest

from tiga.runtime.pool import ALIGNMENT, PAGE, POOLED_FROM, Pool, is_pooled
from tiga.runtime.scope import block_of

FLOAT = np.dtype(np.float32)
LARGE = (POOLED_FROM,)


def _place(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_used_again_only_when_nothing_refers_to_it():
    pool = Pool()
    first = pool.array(LARGE, FLOAT)
    second = pool.array(LARGE, FLOAT)
    assert not np.may_share_memory(first, second)
    place, view = _place(first), first[3:5]
    del first
    assert not np.may_share_memory(pool.array(LARGE, FLOAT), view)
    del view
    taken = [pool.array(LARGE, FLOAT), pool.array(LARGE, FLOAT)]
    assert place in map(_place, taken)


def test_what_was_freed_last_is_taken_first():
    pool = Pool()
    first, second = pool.array(LARGE, FLOAT), pool.array(LARGE, FLOAT)
    place = _place(second)
    del first, second
    taken = pool.array(LARGE, FLOAT)
    assert _place(taken) == place
    del taken
    assert _place(pool.array(LARGE, FLOAT)) == place


def test_a_block_serves_smaller_arrays_of_any_type_but_not_much_smaller_ones():
    pool = Pool()
    place = _place(pool.array((2 * POOLED_FROM,), FLOAT))
    assert _place(pool.array((POOLED_FROM,), np.dtype(np.float64))) == place
    assert _place(pool.array((POOLED_FROM // 2,), FLOAT)) != place


@pytest.mark.parametrize("shape", [(POOLED_FROM,), (1024, 1027), (3, 1 << 20)])
def test_arrays_start_on_cache_lines_at_different_places_of_a_page(shape):
    pool = Pool()
    arrays = [pool.array(shape, FLOAT) for _ in range(4)]
    assert all(_place(array) % ALIGNMENT == 0 for array in arrays)
    assert len({_place(array) % PAGE for array in arrays}) == 4
    for number, array in enumerate(arrays):
        array[...] = number
    assert [array.min() for array in arrays] == [array.max() for array in arrays] == [0, 1, 2, 3]


def test_no_more_than_the_limit_waits():
    pool = Pool(limit=8 * POOLED_FROM)
    arrays = [pool.array((POOLED_FROM + 64 * i,), FLOAT) for i in range(9)]
    del arrays
    held = pool.array((16 * POOLED_FROM,), FLOAT)
    assert sum(block.nbytes for block in pool._blocks if block.free) <= pool.limit
    assert held.nbytes == 64 * POOLED_FROM


def test_small_arrays_are_not_pooled():
    pool = Pool()
    assert pool.array((8,), FLOAT).base is None
    assert not pool._blocks
    assert is_pooled(pool.array((8,), FLOAT, least=32))


def test_waiting_memory_is_given_back_oldest_first():
    pool = Pool()
    arrays = [pool.array(LARGE, FLOAT) for _ in range(4)]
    places = [_place(array) for array in arrays]
    held = arrays[1]
    del arrays
    pool.shrink(held.nbytes)
    assert sum(block.nbytes for block in pool._blocks) == 2 * held.nbytes
    assert _place(pool.array(LARGE, FLOAT)) == places[3]
    pool.shrink(0)
    assert _place(held) == places[1]


def test_an_array_stands_for_itself_where_memory_is_charged():
    pool = Pool()
    first = pool.array(LARGE, FLOAT)
    assert block_of(first) is first
    assert block_of(first[3:5]) is first
