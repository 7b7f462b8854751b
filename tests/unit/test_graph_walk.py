"""Walks: index types and the decomposition of work at sizes that small graphs don't reach."""

import numpy as np
import pytest

from tiga.relations import Graph
from tiga.relations.csr import is_sorted, stable_order
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE, MAX_TASKS, TASK_WEIGHT, plan_rows


def row_pointers(degrees):
    return np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)


def task_weights(row_ptr, plan):
    degree = np.diff(row_ptr)
    weight = np.where(degree > HUB_DEGREE, 0, degree) + 1
    return np.add.reduceat(weight, plan.task_ptr[:-1])


def test_no_rows_no_tasks():
    plan = plan_rows(np.zeros(1, dtype=np.int64))
    assert plan.task_ptr.tolist() == [0]
    assert plan.hub_ptr.tolist() == [0]


def test_small_graphs_are_one_task():
    assert plan_rows(row_pointers([3, 0, 5])).task_ptr.tolist() == [0, 3]
    assert plan_rows(row_pointers([0])).task_ptr.tolist() == [0, 1]


@pytest.mark.parametrize("degree", [0, 1, 16, HUB_DEGREE])
@pytest.mark.parametrize("num_rows", [1, 5000, 100_000])
def test_tasks_are_about_equal(degree, num_rows):
    row_ptr = row_pointers(np.full(num_rows, degree))
    plan = plan_rows(row_ptr)
    weights = task_weights(row_ptr, plan)
    target = max(TASK_WEIGHT, -(-int(weights.sum()) // MAX_TASKS))
    assert plan.task_ptr[0] == 0
    assert plan.task_ptr[-1] == num_rows
    assert len(weights) <= MAX_TASKS
    assert weights.max() <= target + degree + 1
    assert weights[:-1].min(initial=target) >= target - degree - 1


def test_a_hub_is_cut_in_chunks_and_weighs_one_row():
    degrees = [1, HUB_DEGREE, 0, HUB_DEGREE + 1, 2, 3 * HUB_DEGREE]
    row_ptr = row_pointers(degrees)
    plan = plan_rows(row_ptr)
    assert plan.hub_rows.tolist() == [3, 5]
    assert plan.hub_ptr.tolist() == [0, 3, 9]
    assert plan.chunk_row.tolist() == [3] * 3 + [5] * 6
    assert (plan.chunk_hi - plan.chunk_lo).tolist() == [HUB_CHUNK] * 2 + [1] + [HUB_CHUNK] * 6
    assert plan.chunk_lo[0] == row_ptr[3]
    assert plan.chunk_hi[-1] == row_ptr[6]
    assert plan.task_ptr.tolist() == [0, 2, 6]


def test_everything_is_contiguous_and_of_its_type():
    graph = Graph.from_coo(*np.random.default_rng(0).integers(0, 50, (2, 6000)))
    for walk in (graph.walk("dst"), graph.walk("src")):
        arrays = {
            name: value for name, value in vars(walk).items() if isinstance(value, np.ndarray)
        }
        assert all(array.flags.c_contiguous for array in arrays.values())
        narrow = {name for name, array in arrays.items() if array.dtype == np.int32}
        assert narrow == {"index", "edge_id"} & set(arrays)
        assert all(a.dtype == np.int64 for name, a in arrays.items() if name not in narrow)
        assert walk.nbytes == sum(array.nbytes for array in arrays.values())


def test_only_the_source_walk_maps_edges():
    """Also where the map is the identity: the presence of an operand must not depend on data."""
    for graph in (Graph.from_coo([], []), Graph.from_coo([0, 1], [0, 1])):
        assert graph.walk("dst").edge_id is None
        assert graph.walk("src").edge_id.tolist() == list(range(graph.num_edges))


def test_int64_where_int32_does_not_reach():
    graph = Graph.from_csr([0, 2], np.array([2**31, 5]))
    assert graph.num_src == 2**31 + 1
    walk = graph.walk("dst")
    assert walk.index.dtype == np.int64
    assert walk.index.tolist() == [2**31, 5]
    narrow = Graph.from_csr([0, 2], np.array([2**31 - 2, 5])).walk("dst")
    assert narrow.index.dtype == np.int32


@pytest.mark.parametrize("num_keys", [10, 2**31, 2**61])
def test_stable_order_packed_and_not(num_keys):
    keys = np.random.default_rng(0).integers(0, 10, 1000)
    keys[::7] = min(num_keys - 1, 2**60)
    order = stable_order(keys, num_keys)
    assert order.tolist() == sorted(range(1000), key=keys.tolist().__getitem__)


def test_is_sorted():
    assert is_sorted(np.array([], dtype=np.int32))
    assert is_sorted(np.array([3]))
    assert is_sorted(np.array([0, 0, 2]))
    assert not is_sorted(np.array([0, 2, 1]))
