"""Plans of small graphs are made on the host, and are those that a device makes."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

import tiga as tg
from tests.gpu import harness
from tiga.backends.triton import topology as topologies
from tiga.backends.triton.edge_tiles import edge_tiles
from tiga.backends.triton.topology import device_walk, is_planned_here
from tiga.relations import Graph, on_device
from tiga.relations.indices import on_host
from tiga.runtime.cuda import torch_platform

DEVICE = harness.device()


class Weighted(tg.MessagePassing):
    reducer = tg.mean()

    def edge(self, src, dst, edge):
        return src.x * edge.w


def edges(hub: int) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.random.default_rng(0).integers(0, (90, 70), (2000, 2)).T
    dst[:hub] = 3
    src[:hub] = 5
    return src, dst


def plans(hub: int, side: str) -> list[Any]:
    src, dst = edges(hub)
    topology = Graph.from_coo(src, dst, num_src=90, num_dst=75).snapshot()
    platform = torch_platform(DEVICE)
    walk = device_walk(topology, side, platform)
    return [is_planned_here(topology), walk, edge_tiles(topology, walk, side, 64, platform)]


@pytest.mark.parametrize("hub", [0, 600])
@pytest.mark.parametrize("side", ["dst", "src"])
def test_plans_are_the_same(hub: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, *of_host = plans(hub, side)
    monkeypatch.setattr(on_device, "SMALL", 0)
    there, *of_device = plans(hub, side)
    assert (here, there) == (True, False)
    for mine, theirs in zip(of_host, of_device, strict=True):
        for name in [f.name for f in fields(mine) if f.name not in ("seconds", "copied", "walk")]:
            found, wanted = getattr(mine, name), getattr(theirs, name)
            if not hasattr(wanted, "data_ptr"):
                assert found == wanted, name
                continue
            assert found.dtype == wanted.dtype, name
            np.testing.assert_array_equal(on_host(found), on_host(wanted), err_msg=name)


def test_a_small_graph_is_sent_once_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    platform = torch_platform(DEVICE)
    kind = type(platform)
    send = kind.sent_together
    monkeypatch.setattr(kind, "sent_together", lambda p, a: sent.append(len(a)) or send(p, a))
    monkeypatch.setattr(topologies, "device_csr", lambda *_: pytest.fail("not one by one"))
    src, dst = edges(0)
    topology = Graph.from_coo(src, dst, num_src=90, num_dst=75).snapshot()
    for side in ("dst", "src", "dst"):
        device_walk(topology, side, platform)
    assert len(sent) == 2


@pytest.mark.parametrize("hub", [0, 600])
def test_work_lists_take_chunks_of_long_rows_then_rows_longest_first(hub: int) -> None:
    src, dst = edges(hub)
    topology = Graph.from_coo(src, dst, num_src=90, num_dst=75).snapshot()
    walk = device_walk(topology, "dst", torch_platform(DEVICE))
    degree = np.bincount(dst, minlength=75)
    first = np.cumsum(degree) - degree
    items = []
    for row in np.flatnonzero(degree > topologies.CHUNK):
        for low in range(0, degree[row], topologies.CHUNK):
            left = min(topologies.CHUNK, degree[row] - low)
            items.append((row, first[row] + low, left))
    rows = [row for row in range(75) if degree[row] <= topologies.CHUNK]
    items += [(row, first[row], degree[row]) for row in sorted(rows, key=lambda r: -degree[r])]
    found = [on_host(getattr(walk, f"item_{part}")) for part in ("row", "low", "count")]
    np.testing.assert_array_equal(np.stack(found, 1), items)
    assert walk.num_hubs == (degree > topologies.CHUNK).sum()
    assert walk.degrees.mean == 32


@pytest.mark.gpu
def test_graphs_that_come_from_the_host() -> None:
    kernel = Weighted()

    def step(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        src, dst = torch.randint(0, 60 + seed, (2, 300 + seed), generator=generator)
        graph = Graph.from_coo(src, dst, num_src=60 + seed, num_dst=60 + seed)
        x, w = torch.randn(60 + seed, 8), torch.rand(300 + seed, 1)
        found = []
        for device in ("cpu", "cuda"):
            leaf, weights = x.to(device).requires_grad_(), w.to(device)
            out = kernel(graph=graph.to(device), ndata={"x": leaf}, edge={"w": weights})
            found.append([out, *torch.autograd.grad(out.square().sum(), leaf)])
        for mine, other in zip(*found, strict=True):
            torch.testing.assert_close(mine, other.cpu(), rtol=1e-4, atol=1e-5)

    for seed in range(3):
        step(seed)
