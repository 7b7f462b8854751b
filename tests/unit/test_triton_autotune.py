"""Measured tiles: which are tried, which is kept, and what later processes find."""

import json

import pytest
import torch

from tests.gpu import programs
from tiga.backends.triton import autotune
from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.preparation import Run
from tiga.errors import UnsupportedByBackend
from tiga.relations import Graph
from tiga.runtime.cuda import torch_platform
from tiga.types import float32

GRAPH = Graph.from_csr([0, 3, 5, 9], [0, 1, 2, 0, 1, 3, 2, 1, 0], num_src=4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tiga" / "tiles"


def tuned(name, time):
    """The step of a program, by name or itself, after tuning, and the tiles that were measured."""
    program = programs.MAKERS[name](float32).program if isinstance(name, str) else name
    executable = compile_program(program)
    (step,) = executable.steps
    run = Run({step.program.relation: GRAPH.snapshot()}, {}, torch_platform(torch.device("cpu")))
    degrees = run.walk(step.program.relation, step.program.side).degrees
    tried = []

    def milliseconds(tile):
        tried.append(tile)
        return time(tile)

    found = autotune.tune([step], run, "a machine", lambda: step.tile(degrees), milliseconds)
    return step, found, tried, degrees


def test_the_fastest_tile_is_kept_and_found_again(folder):
    step, best, tried, degrees = tuned("weighted_sum", lambda t: 1.0 / (t.rows * t.warps))
    assert len(tried) > 4
    assert best == max(tried, key=lambda t: t.rows * t.warps)
    assert f"the best of {len(tried)} measured" in step.measured[degrees]
    (place,) = folder.iterdir()
    assert json.loads(place.read_text())["rows"] == best.rows
    again, found, tried, _ = tuned("weighted_sum", lambda t: 1.0)
    assert (found, tried) == (best, [])
    assert again.measured[degrees] == "measured before on this machine"


def test_narrower_windows_are_tried_kept_and_found_again():
    program = programs.weighted_sum(float32, (64,)).program
    _, best, tried, _ = tuned(program, lambda t: float(t.window))
    assert {t.window for t in tried} == {64, 32, 16}
    assert (best.window, best.windows) == (16, 4)
    _, found, tried, _ = tuned(program, lambda t: 1.0)
    assert (found, tried) == (best, [])


def test_tiles_of_edges_are_tried_where_they_fit():
    _, best, tried, _ = tuned("weighted_numbers", lambda t: 1.0 + isinstance(t, EdgeTile))
    assert {isinstance(t, EdgeTile) for t in tried} == {True, False}
    assert not isinstance(best, EdgeTile)
    assert tuned("weighted_numbers", lambda t: 1.0)[1] == best


def test_small_gains_change_nothing_and_refusals_are_no_candidates():
    def time(tile):
        if tile.warps > 1:
            raise UnsupportedByBackend("too many")
        return 0.99 if tile.rows > 8 else 1.0

    _, best, tried, _ = tuned("weighted_sum", time)
    assert best == tried[0]


def test_a_file_that_cannot_be_read_is_measured_again(folder):
    tuned("weighted_sum", lambda t: t.rows)
    (place,) = folder.iterdir()
    place.write_text("{")
    _, _, tried, _ = tuned("weighted_sum", lambda t: t.rows)
    assert tried
