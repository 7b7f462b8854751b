"""Values that a walk stores by number and memory does not hold: kept as they come, then ordered."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.paging.collected import Collected
from tiga.runtime.arena import Arena
from tiga.runtime.pages import FileRows, Traffic

NODES, EDGES, WIDTH = 3000, 40_000, 8


@pytest.mark.parametrize("count", [1, 1000, 30_000])
@pytest.mark.parametrize("width", [4, 24])
def test_rows_in_any_order_end_in_theirs(count: int, width: int, tmp_path: Path) -> None:
    rng, traffic = np.random.default_rng(0), Traffic()
    fds = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "abc"]
    home, rows = (FileRows(fd, 0, count, width, traffic, None) for fd in fds[:2])
    numbers = FileRows(fds[2], 0, count, 4, traffic, None)
    values = rng.integers(0, 256, (count, width), np.uint8)
    collected = Collected(home, np.dtype(np.int32), numbers, rows)
    order = rng.permutation(count)
    for part in np.array_split(order, 5):
        ids = np.sort(part)
        for piece in np.array_split(ids, 3):
            collected.put(piece, values[piece])
    collected.finish(Arena(2**21 + 100_000))
    found = np.empty_like(values)
    home.read_into(0, found)
    assert np.array_equal(found, values)
    assert traffic.written == count * (2 * width + 4)
    for fd in fds:
        os.close(fd)


class Scaled(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w * src.x


def gradients(graph: Any, x: Any, w: Any) -> tuple[Any, ...]:
    import torch

    out = Scaled()(graph=graph, src={"x": x}, edge={"w": w})
    return torch.autograd.grad(out, (x, w), torch.ones(()).expand(out.shape))


def test_gradients_of_edge_values_that_memory_does_not_hold(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    ends = rng.integers(0, NODES, (2, EDGES))
    graph = tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)
    x, w = rng.random((NODES, WIDTH), np.float32), rng.random((EDGES, WIDTH), np.float32)
    paged = tg.Graph.open(graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    ordered = torch.from_numpy(np.array(paged.field("edge", "w").numpy()))
    expected = gradients(paged.in_memory(), torch.from_numpy(x).requires_grad_(),
                         ordered.requires_grad_())  # fmt: skip
    fields = (paged.field("src", "x"), paged.field("edge", "w"))
    attached = [torch.from_numpy(f.numpy()).requires_grad_() for f in fields]
    with tg.execution(memory={"host": "700KiB"}, spill_dir=tmp_path):
        before = paged.traffic.written
        found = gradients(paged, *attached)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    values = EDGES * WIDTH * 4
    assert paged.traffic.written - before < 4 * values
