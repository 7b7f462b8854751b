"""Every example runs as a script, and learns or finds what it says."""

import subprocess
import sys
from pathlib import Path

import batches
import equivariant
import forces
import label_propagation
import mesh
import numpy as np
import pagerank
import pytest
import schnet
import torch
import waves
from graphs import digits

import tiga as tg

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLASSIFIERS = {
    "gcn": 0.9, "sage": 0.9, "gat": 0.9, "gatv2": 0.85, "gin": 0.85, "pna": 0.85, "edgeconv": 0.85,
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_networks_learn(name):
    """Every label is learned from a fifth of them; guessing gives a tenth or a third."""
    module = __import__(name)
    assert module.main() > CLASSIFIERS[name]


def test_filters_on_points_learn():
    assert schnet.main() < 0.15


def test_forces_learn():
    first, last = forces.main()
    assert last < 0.1 * first


def test_forces_in_batches_learn():
    first, last = batches.main()
    assert last < 0.3 * first


def test_conductivity_is_found():
    first, last = mesh.main()
    assert last < 0.1 * first


def test_an_origin_of_waves_is_found():
    first, last = waves.main()
    assert last < 0.3 * first


@pytest.mark.slow
def test_equivariant_forces_learn():
    first, last = equivariant.main()
    assert last < 0.3 * first


def test_flows_are_what_the_nodes_gain():
    """Along the two directions of an edge the same heat flows, and none is lost."""
    grid = mesh.square(6)
    start = mesh.experiments(grid)
    flow, heat = mesh.simulate(grid, grid.graph, torch.ones(36).double(), start, steps=1)
    source, target = grid.edge_index
    gained = torch.zeros_like(start).index_add(0, target, flow)
    torch.testing.assert_close(heat - start, 2e-4 * gained / grid.area[:, None])
    torch.testing.assert_close(gained, -torch.zeros_like(start).index_add(0, source, flow))
    torch.testing.assert_close(grid.area @ heat, grid.area @ start)


def test_label_propagation_against_a_matrix():
    sample = digits()
    known = torch.nn.functional.one_hot(sample.labels, 10) * sample.train[:, None].double()
    source, target = sample.edge_index
    matrix = torch.zeros(600, 600, dtype=torch.float64)
    matrix.index_put_((target, source), torch.ones(len(source), dtype=torch.float64), True)
    scale = [matrix.sum(axis).clamp(min=1).rsqrt() for axis in (0, 1)]
    matrix = scale[1][:, None] * matrix * scale[0]
    expected = known
    for _ in range(20):
        expected = 0.9 * matrix @ expected + 0.1 * known
    found = label_propagation.propagate(sample.graph, known)
    torch.testing.assert_close(found, expected)
    assert label_propagation.main() > 0.9


def test_pagerank_against_eigenvectors():
    """The stationary distribution of the walk, with a node that leads nowhere."""
    edges = torch.tensor([[0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 0, 2, 4, 5]])
    matrix = np.zeros((6, 6))
    for source, target in edges.T.tolist():
        matrix[target, source] = 1
    out = matrix.sum(0)
    matrix[:, out == 0], out[out == 0] = 1, 6
    values, vectors = np.linalg.eig(0.85 * matrix / out + 0.15 / 6)
    stationary = np.abs(vectors[:, values.real.argmax()].real)
    found = pagerank.pagerank(tg.Graph.from_edge_index(edges, num_nodes=6))
    np.testing.assert_allclose(found, stationary / stationary.sum(), atol=1e-10)
    assert abs(pagerank.main().sum().item() - 1) < 1e-9


def test_a_script_runs_by_itself():
    script = EXAMPLES / "pagerank.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "most central images" in done.stdout
