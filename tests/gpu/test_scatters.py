"""Sums at the far ends of a walk: block by block of its rows, in memory that blocks share."""

import numpy as np
import pytest

from tests.gpu import harness
from tiga.backends.triton import scatter_blocks
from tiga.backends.triton.executable import prepare
from tiga.backends.triton.scan_tiles import whole_rows
from tiga.backends.triton.scatter_blocks import far_blocks
from tiga.backends.triton.scatters import PIECE
from tiga.backends.triton.topology import device_walk
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul
from tiga.passes.rows import Phase, Plan, RowProgram
from tiga.relations import Graph
from tiga.runtime.cuda import torch_platform
from tiga.trace.program import Program
from tiga.types import Type, float32, float64


@pytest.fixture
def few_messages(monkeypatch):
    """Blocks of a few messages."""
    monkeypatch.setattr(scatter_blocks, "LEAST_BYTES", 256)


def both_ends(shape, dtype, side="dst"):
    """Sums of the same messages at both ends of their edges, by one walk."""
    relation, other = harness.RELATION, "src" if side == "dst" else "dst"
    x = Input("x", Type(dtype, shape, harness.SRC))()
    y = Input("y", Type(dtype, shape, harness.DST))()
    message = mul(gather(relation, "src", x), gather(relation, "dst", y))
    near, far = sum_to(relation, side, message), sum_to(relation, other, message)
    phases = (Phase((near,), scatters=(far,)),)
    walk = RowProgram(relation.end(side), relation, side, phases, (near,), (), (x, y))
    return Program((x, y), (near, far)), Plan((x, y), (near, far), (walk,))


def check(program, plan, where, rng, dtype):
    executable = prepare(plan, (harness.RELATION,))
    assert len(executable.steps) == 1
    assert executable.plan.intermediates == ()
    arrays = harness.fields(rng, where, program.inputs)
    found = harness.run(program, arrays, where, executable)
    for got, want in zip(found, harness.oracle(program, arrays, where), strict=True):
        harness.assert_close(got, want, dtype, "sums")
    return executable


@pytest.mark.parametrize("dtype", [float32, float64], ids=repr)
@pytest.mark.parametrize("shape", [(), (5,)], ids=repr)
def test_sums_at_both_ends_of_one_walk(rng, shape, dtype):
    program, plan = both_ends(shape, dtype)
    where = harness.problem(rng, 23, 29, rng.integers(0, 12, 29))
    check(program, plan, where, rng, dtype)


@pytest.mark.parametrize("side", ["dst", "src"])
@pytest.mark.parametrize("num_src", [3, 40])
def test_many_blocks_with_rows_that_are_split(rng, few_messages, num_src, side):
    program, plan = both_ends((3,), float32, side)
    degrees = [0, 7, 700, *rng.integers(0, 40, 30), 300]
    where = harness.problem(rng, num_src, len(degrees), degrees)
    check(program, plan, where, rng, float32)
    (far,) = [v for v in where.graph.snapshot().derived.values() if hasattr(v, "blocks")]
    assert len(far.blocks) > 5
    assert (far.spilled > 0) == (num_src == 3)


def test_a_graph_without_edges(rng):
    program, plan = both_ends((2,), float32)
    check(program, plan, harness.problem(rng, 4, 3, [0, 0, 0]), rng, float32)
    check(program, plan, harness.problem(rng, 4, 0, []), rng, float32)


@pytest.mark.parametrize("whole", [False, True])
def test_blocks_take_every_message_to_its_far_end_once(rng, whole):
    degrees = [0, 3, 900, *rng.integers(0, 30, 50), 600]
    where = harness.problem(rng, 5, len(degrees), degrees)
    topology, platform = where.graph.snapshot(), torch_platform(harness.device())
    walk = device_walk(topology, "dst", platform)
    plan = whole_rows(topology, walk, "dst", platform) if whole else walk
    far = far_blocks(topology, plan, "dst", 100, platform)
    low, count, slot = (
        harness.to_array(a) for a in (plan.item_low, plan.item_count, far.item_slot)
    )
    order, row, begin = (harness.to_array(a) for a in (far.order, far.piece_row, far.piece_low))
    sources = harness.to_array(walk.index)
    seen = []
    for block in far.blocks:
        at = {}
        for item in range(*block.items):
            for step in range(count[item]):
                at[slot[item] + step] = low[item] + step
        assert sorted(at) == list(range(block.edges)) == list(range(len(at)))
        first, stop = block.pieces
        for piece in range(first, stop):
            places = order[begin[piece] : begin[piece + 1]]
            assert 0 < len(places) <= PIECE
            assert all(np.diff(places) > 0)
            assert {sources[at[p]] for p in places} == {row[piece]}
            seen += [at[p] for p in places]
        rows = list(row[first:stop])
        alone = rows[block.spilled :]
        assert len(set(alone)) == len(alone)
        assert not set(alone).intersection(rows[: block.spilled])
        hubs = range(*block.hubs)
        ends = [(int(far.hub_low[h]), int(far.hub_high[h])) for h in hubs]
        assert [p for low_, high in ends for p in range(low_, high)] == list(
            range(first, first + block.spilled)
        )
        assert [int(far.hub_row[h]) for h in hubs] == [row[low_] for low_, _ in ends]
    assert sorted(seen) == list(range(len(sources)))


def test_blocks_are_the_same_for_equal_graphs(rng):
    src, dst = rng.integers(0, 9, 300), np.sort(rng.integers(0, 7, 300))
    found = []
    for _ in range(2):
        topology = Graph.from_coo(src, dst, num_src=9, num_dst=7).snapshot()
        platform = torch_platform(harness.device())
        walk = device_walk(topology, "dst", platform)
        found.append(far_blocks(topology, walk, "dst", 50, platform))
    assert found[0].blocks == found[1].blocks
    assert harness.to_array(found[0].order).tolist() == harness.to_array(found[1].order).tolist()
