"""Tiles of consecutive edges without a GPU: which graphs get them, their text, and PTX."""

import re

import pytest
import torch

from tests.golden.stored import require_stored
from tests.gpu import programs
from tiga.backends.triton.choice import choose, cost, edge_tile
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.edge_tiles import EdgeTile, edge_tiles
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.preparation import Shape
from tiga.backends.triton.segments import fits
from tiga.backends.triton.topology import Degrees, device_walk
from tiga.relations import Graph
from tiga.runtime.cuda import torch_platform
from tiga.types import float32

CPU = torch_platform(torch.device("cpu"))


def step() -> RowStep:
    (found,) = compile_program(programs.weighted_sum(float32, ()).program).steps
    assert isinstance(found, RowStep)
    return found


def sources():
    return [s for _, s in step().sources(Shape(edge_tile(), 32, False, True))]


def test_uneven_rows_are_taken_edge_by_edge():
    program = step().program
    even, uneven = Degrees(16, 16, breaks=0), Degrees(1024, 16, breaks=15)
    assert not isinstance(choose(program, even), EdgeTile)
    assert isinstance(choose(program, uneven), EdgeTile)
    assert cost(program, uneven).rows > cost(program, even).rows
    assert cost(program, uneven).edges == cost(program, even).edges


@pytest.mark.parametrize("name", ["weighted_sum", "softmax", "total", "edge_output"])
def test_programs_that_need_more_than_the_edges_do_not_fit(name):
    for made in compile_program(programs.MAKERS[name](float32).program).steps:
        assert not fits(made.program)


def test_breaks_are_counted_in_the_work_list():
    rows = torch.tensor([3, 1, 2, 3, 2])
    dst = torch.repeat_interleave(torch.arange(5), rows)
    graph = Graph.from_coo(torch.zeros_like(dst), dst, num_src=1, num_dst=5)
    walk = device_walk(graph.snapshot(), "dst", CPU)
    assert walk.item_count.tolist() == [3, 3, 2, 2, 1]
    assert walk.degrees.breaks == round(16 * 4 / 5)
    same = Graph.from_csr([0, 2, 4, 6], [0] * 6, num_src=1)
    assert device_walk(same.snapshot(), "dst", CPU).degrees.breaks == 0


def test_tiles_of_a_walk():
    """Rows of 3, 0, 40 and 21 edges in tiles of 32."""
    graph = Graph.from_csr([0, 3, 3, 43, 64], [0] * 64, num_src=1)
    snapshot = graph.snapshot()
    walk = device_walk(snapshot, "dst", CPU)
    tiles = edge_tiles(snapshot, walk, "dst", 32, CPU)
    assert tiles.num_tiles == 2
    assert tiles.full_rows.tolist() == [0, 2, 3]
    assert tiles.full_before.tolist() == [-1, 1]
    assert tiles.empty_rows.tolist() == [1]
    assert (tiles.hub_rows.tolist(), tiles.hub_ptr.tolist()) == ([2], [0, 2])
    assert (tiles.head_slot.tolist(), tiles.tail_slot.tolist()) == ([-1, 1], [0, -1])
    heads = [i for i in range(96) if tiles.heads[i // 32].item() >> (i % 32) & 1]
    assert heads == [0, 3, 43, 64]
    assert edge_tiles(snapshot, walk, "dst", 32, CPU) is tiles


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_without_a_gpu(capability):
    for source in sources():
        aligned = [p.type.startswith("*") for p in source.parameters]
        ptx = compile_kernel(source, capability, aligned).asm["ptx"]
        assert f".target sm_{capability}" in ptx
        assert not re.search(r"\bfma\.rn\.f32\b", ptx)
        if source.name.endswith("segments"):
            assert "v4.b32" in ptx, "indices and weights are read four at a time"


def test_text_of_kernels():
    code = "\n\n".join(f"# {s.name}: {s.tile}\n{s.text}" for s in sources())
    require_stored("triton/segments.py.txt", code)
