"""Graphs of near points, beside all pairs of all images."""

import itertools

import numpy as np
import pytest
import torch

import tiga as tg
from tiga.errors import InvalidType, InvalidValue

CUBE = np.eye(3) * 4.0
SKEW = np.array([[3.0, 0.2, -0.4], [0.9, 2.5, 0.1], [-0.3, 0.6, 3.4]])
AXES = list(itertools.product((False, True), repeat=3))


def points(count, spread=6.0, seed=0):
    return np.random.default_rng(seed).uniform(-spread / 2, spread, (count, 3))


def edges(found):
    """Destination, source and image of each edge."""
    src, dst = found.graph.coo()
    rows = zip(dst.tolist(), src.tolist(), *(axis.tolist() for axis in found.shift.T), strict=True)
    return [tuple(map(int, row)) for row in rows]


def all_pairs(position, cutoff, cell=None, periodic=(False,) * 3, batch=None, images=9):
    cell = np.eye(3) if cell is None else cell
    turns = [range(-images, images + 1) if axis else (0,) for axis in periodic]
    found = set()
    for shift in itertools.product(*turns):
        apart = position - position[:, None] + np.array(shift, float) @ cell
        for dst, src in np.argwhere((apart**2).sum(-1) <= cutoff**2):
            same = batch is None or batch[dst] == batch[src]
            if same and (dst != src or any(shift)):
                found.add((int(dst), int(src), *shift))
    return found


def agree(found, wanted):
    got = edges(found)
    assert len(got) == len(set(got)), "a pair is there twice"
    assert set(got) == wanted


@pytest.mark.parametrize("cell", [CUBE, SKEW], ids=["cube", "skew"])
@pytest.mark.parametrize("periodic", AXES, ids=str)
def test_each_axis_is_periodic_or_not(periodic, cell):
    position = points(14)
    for cutoff in (0.7, 1.9, 5.0):  # less than half a cell, half of one, more than one
        found = tg.radius_graph(position, cutoff, cell=cell, periodic=periodic)
        agree(found, all_pairs(position, cutoff, cell, periodic))


def test_without_a_cell():
    position = points(300)
    for cutoff in (0.1, 1.3, 20.0):
        agree(tg.radius_graph(position, cutoff), all_pairs(position, cutoff))


def test_many_bins_and_threads():
    position = points(2000, 12.0)
    found = tg.radius_graph(position, 1.0, cell=np.eye(3) * 18.0)
    reverse = {(src, dst, -x, -y, -z) for dst, src, x, y, z in edges(found)}
    assert reverse == set(edges(found)), "a pair in one direction only"
    src, dst = found.graph.coo()
    apart = position[src] + found.shift @ (np.eye(3) * 18.0) - position[dst]
    assert (np.linalg.norm(apart, axis=1) <= 1.0).all()
    near = position[:, None] - position
    near -= 18.0 * np.round(near / 18.0)
    assert found.graph.num_edges == ((near**2).sum(-1) <= 1.0).sum() - len(position)


def test_a_point_is_its_own_neighbour_one_period_away():
    found = tg.radius_graph(np.zeros((1, 3)), 2.5, cell=np.eye(3) * 2.0)
    assert found.graph.num_edges == 6
    assert sorted(edges(found))[0] == (0, 0, -1, 0, 0)


def test_points_on_the_cutoff_and_on_one_another():
    position = np.array([[0.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]])
    assert sorted(edges(tg.radius_graph(position, 1.0)))[0] == (0, 1, 0, 0, 0)
    assert tg.radius_graph(position, 1.0).graph.num_edges == 6
    assert tg.radius_graph(position, 0.5).graph.num_edges == 2


@pytest.mark.parametrize("cell", [None, SKEW, np.stack([CUBE, SKEW, CUBE * 0.6])], ids=str)
def test_systems_in_any_order(cell):
    position, batch = points(40), np.random.default_rng(1).integers(0, 3, 40)
    found = tg.radius_graph(position, 1.7, cell=cell, batch=batch)
    axes = (cell is not None,) * 3
    wanted = set()
    for system in range(3):
        own = cell[system] if cell is not None and cell.ndim == 3 else cell
        members = np.flatnonzero(batch == system)
        for dst, src, *shift in all_pairs(position[members], 1.7, own, axes):
            wanted.add((int(members[dst]), int(members[src]), *shift))
    agree(found, wanted)


def test_systems_that_differ_in_their_periodic_axes():
    """A crystal, a slab whose third vector is left out, a molecule far from 0, and no points."""
    cells = np.stack([SKEW, np.diag([2.5, 3.5, 0]), np.zeros((3, 3)), CUBE])
    axes = np.array([[True] * 3, [True, True, False], [False] * 3, [True] * 3])
    position, batch = points(45), np.random.default_rng(1).integers(0, 3, 45)
    position[batch == 2] = position[batch == 2] * 2.5 + 70.0
    for cutoff in (0.8, 2.9):
        found = tg.radius_graph(position, cutoff, cell=cells, periodic=axes, batch=batch)
        wanted = set()
        for system in range(3):
            members = np.flatnonzero(batch == system)
            own = all_pairs(position[members], cutoff, cells[system], axes[system])
            wanted |= {(int(members[d]), int(members[s]), *shift) for d, s, *shift in own}
        agree(found, wanted)


@pytest.mark.parametrize("count", [9, 29])
def test_points_of_lattices_just_a_cutoff_apart(count):
    """Where points are rounded to either side of a bin's edge, pairs are found all the same."""
    rng = np.random.default_rng(count)
    for steps in range(1, 5):
        for _ in range(60):
            cutoff = rng.uniform(0.1, 3)
            position = np.zeros((count, 3))
            position[:, 1] = rng.uniform(-5, 5) + rng.permutation(count) * (cutoff / steps)
            apart = ((position[:, None] - position) ** 2).sum(-1)
            near = (apart <= cutoff * cutoff).sum() - count
            assert tg.radius_graph(position, cutoff).graph.num_edges == near


def test_a_slab_whose_third_vector_is_left_out():
    cell = np.array([[3.0, 0, 0], [1.0, 3.0, 0], [0, 0, 0]])
    position = points(12)
    found = tg.radius_graph(position, 2.0, cell=cell, periodic=(True, True, False))
    agree(found, all_pairs(position, 2.0, cell, (True, True, False)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kinds_of_the_user_and_edges_in_the_order_of_rows(dtype):
    position = torch.tensor(points(30), dtype=dtype, requires_grad=True)
    found = tg.radius_graph(position, 2.0, cell=torch.tensor(SKEW))
    assert found.shift.dtype == dtype
    assert found.graph.col_idx.dtype == torch.int64
    assert not found.graph.permutes_edges
    empty = tg.radius_graph(torch.zeros(0, 3), 1.0)
    assert (empty.graph.num_dst, empty.graph.num_edges, empty.shift.shape) == (0, 0, (0, 3))


def test_forces_across_the_boundary():
    """The gradient of an energy of distances, and with it that of the cell."""

    class Energy(tg.MessagePassing):
        def edge(self, src, dst, edge, cell):
            apart = src.r + edge.shift @ cell - dst.r
            return torch.exp(-(apart * apart).sum(-1))

    position = torch.tensor(points(10), requires_grad=True)
    cell = torch.tensor(SKEW, requires_grad=True)
    near = tg.radius_graph(position, 2.5, cell=cell)
    energy = Energy()(
        graph=near.graph, ndata={"r": position}, edge={"shift": near.shift}, cell=cell
    ).sum()
    src, dst = near.graph.coo()
    apart = position[src] + near.shift @ cell - position[dst]
    wanted = torch.exp(-(apart * apart).sum(-1)).sum()
    torch.testing.assert_close(energy, wanted)
    found = torch.autograd.grad(energy, (position, cell))
    torch.testing.assert_close(found, torch.autograd.grad(wanted, (position, cell)))


@pytest.mark.parametrize(
    ("error", "says", "position", "options"),
    [
        (InvalidType, "floats", np.zeros((2, 3), int), {}),
        (InvalidValue, "third coordinate", np.zeros((2, 2)), {}),
        (InvalidValue, "point 1 is at", np.array([[0.0, 0, 0], [0, np.nan, 0]]), {}),
        (InvalidValue, "needs the `cell`", np.zeros((2, 3)), {"periodic": True}),
        (InvalidValue, "in a plane", np.zeros((2, 3)), {"cell": np.ones((3, 3))}),
        (InvalidValue, "`cell` must have shape", np.zeros((2, 3)), {"cell": np.ones(3)}),
        (InvalidValue, "`periodic` must have shape", np.zeros((2, 3)), {"periodic": [True, False]}),
        (
            InvalidValue,
            "every system that `batch` names, got 1",
            np.zeros((2, 3)),
            {"cell": np.eye(3)[None], "batch": [0, 1]},
        ),
        (
            InvalidValue,
            "got 3 and 2",
            np.zeros((2, 3)),
            {"cell": np.stack([CUBE] * 2), "periodic": np.ones((3, 3), bool), "batch": [0, 1]},
        ),
        (InvalidValue, "a number for each point", np.zeros((2, 3)), {"batch": [0]}),
        (InvalidValue, "at least 0", np.zeros((2, 3)), {"batch": [0, -1]}),
        (InvalidType, "integers", np.zeros((2, 3)), {"batch": [0.0, 1.0]}),
    ],
)
def test_what_is_refused(error, says, position, options):
    with pytest.raises(error, match=says):
        tg.radius_graph(position, 1.0, **options)


@pytest.mark.parametrize("cutoff", [0.0, -1.0, np.inf, np.nan])
def test_cutoffs_that_are_refused(cutoff):
    with pytest.raises(InvalidValue, match="positive and finite"):
        tg.radius_graph(np.zeros((2, 3)), cutoff)
