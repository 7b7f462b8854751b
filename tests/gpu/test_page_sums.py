"""Sums over all edges of a graph in a file on a GPU, whose walk takes several pages."""

from typing import Any

import numpy as np
import pytest
import torch

import tiga as tg
from tests.gpu.paged_harness import (
    NODES,
    WIDTH,
    fields,
    same_bits,
    saved,
    within,
)
from tiga.backends.triton.paged import calls, placement, steps

pytestmark = pytest.mark.usefixtures("where")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return saved(tmp_path_factory.mktemp("long"), "long")


class Mixed(tg.MessagePassing, torch.nn.Module):
    """A product of edge values: its matrix's gradient is a sum over all edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.map(torch.relu(src.x - dst.x) * edge.w[:, None])


def test_sums_over_all_edges(long: Any, where: Any) -> None:
    """In one page they are those of memory; of several, each adds its own."""
    kernel = Mixed().to(where)
    memory, opened = long

    def run(graph: Any, given: list[Any]) -> list[Any]:
        out = kernel(graph=graph, ndata={"x": given[0]}, edge={"w": given[1]})
        leaves = [*given, *kernel.parameters()]
        return [out.detach(), *torch.autograd.grad((out**2).sum().cpu(), leaves)]

    expected = run(memory, fields(opened, where, torch.float32, in_file=False))
    assert same_bits(run(opened, fields(opened, where, torch.float32, in_file=True)), expected)
    with tg.execution(memory={"device": "200KiB", "host-pinned": "48KiB"}) as scope:
        found = run(opened, fields(opened, where, torch.float32, in_file=True))
        assert within(scope.memory_report())
    assert same_bits(found[:3], expected[:3])
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_sums_over_all_edges(dtype: Any, long: Any, where: Any) -> None:
    memory, opened = long
    kernel = Mixed().to(where, dtype)
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in kernel.parameters():
            values = rng.integers(-1, 2, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
    x = torch.from_numpy(rng.integers(-1, 2, (NODES, WIDTH))).to(where, dtype)
    w = torch.from_numpy(rng.integers(-1, 2, opened.num_edges)).to(where, dtype)

    def run(graph: Any) -> list[Any]:
        out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
        return list(torch.autograd.grad(out.float().sum().cpu(), kernel.parameters()))

    expected = run(memory)
    with tg.execution(memory={"device": "200KiB", "host-pinned": "48KiB"}):
        found = run(opened)
    pages = [line for line in kernel.explain().splitlines() if "walk, rows = dst" in line]
    assert any("rows in parts" in line for line in pages), pages
    assert same_bits(found, expected)


class Scaled(tg.MessagePassing, torch.nn.Module):
    """What a node makes of its sum reads a vector, whose gradient is a sum over nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0, 0.0]))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x

    def node(self, dst: Any, aggregate: Any) -> Any:
        return (aggregate + dst.x) * self.scale


def test_sums_over_nodes_page_by_page(
    long: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, opened = long
    kernel = Scaled().to(where)
    x = torch.from_numpy(np.random.default_rng(1).integers(-1, 2, (NODES, WIDTH))).float()

    def run(graph: Any) -> list[Any]:
        out = kernel(graph=graph, ndata={"x": x.to(where) if graph is memory else x})
        return list(torch.autograd.grad((out**2).sum().cpu(), kernel.parameters()))

    expected = run(memory)
    monkeypatch.setattr(calls, "LESS_AND_LESS", (calls.Keeps(False, False, False),))
    monkeypatch.setattr(placement, "PAGE_BYTES", 2**10)
    monkeypatch.setattr(steps, "ROWS", 16)
    with tg.execution(memory={"device": "200KiB", "host-pinned": "48KiB", "host": "1B"}):
        found = run(opened)
    rows = [line for line in kernel.explain().splitlines() if "rows without edges: " in line]
    assert any(int(line.split()[3]) > 1 for line in rows), kernel.explain()
    assert same_bits(found, expected)
