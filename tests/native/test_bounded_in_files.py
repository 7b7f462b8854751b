"""Messages that no walk holds, over a graph in a file: block by block, within budgets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import autograd as ag
from tiga.errors import InvalidFile
from tiga.runtime.tiers import parse_size

NODES, EDGES, WIDTH = 200, 3000, 4


class Sorted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.sort(src.x * edge.w, axis=1) - dst.x


class Each(tg.MessagePassing):
    reducer = tg.each()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.sort(src.x * edge.w, axis=1)


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rng = np.random.default_rng(4)
    graph = tg.Graph.from_coo(*rng.integers(0, NODES, (2, EDGES)), num_src=NODES, num_dst=NODES)
    x, w = rng.random((NODES, WIDTH), np.float32), rng.random((EDGES, 1), np.float32)
    path = graph.save(tmp_path_factory.mktemp("g") / "g", {"src": {"x": x}, "edge": {"w": w}})
    return tg.Graph.open(path)


def call(kernel: Any, graph: Any, paged: Any, grad: bool = True) -> tuple[tg.Tensor, list[Any]]:
    """The result on fields of the file, and these."""
    fields = paged.field("src", "x"), paged.field("edge", "w")
    x, w = (tg.from_numpy(one.numpy()).requires_grad_(grad) for one in fields)
    return kernel(graph=graph, ndata={"x": x}, edge={"w": w}), [x, w]


def results(kernel: Any, graph: Any, paged: Any) -> list[np.ndarray]:
    """The output, and the gradients of both fields."""
    out, inputs = call(kernel, graph, paged)
    return [one.numpy() for one in (out, *ag.grad((out * out).sum(), inputs))]


@pytest.mark.parametrize("kernel", [Sorted, Each])
def test_same_bits_as_in_memory(kernel: Any, paged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients add up rows of sources in another order."""
    monkeypatch.setenv("TIGA_MEMORY_BOUND", "20000")
    expected = results(kernel(), paged.in_memory(), paged)
    with tg.execution(memory={"host": "2MiB"}, eviction="lru") as run:
        found = results(kernel(), paged, paged)
    assert np.array_equal(found[0], expected[0])
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size("2MiB")


def test_a_forward_call_keeps_to_a_small_budget(paged: Any) -> None:
    expected, _ = call(Sorted(), paged.in_memory(), paged, grad=False)
    layer = Sorted()
    with tg.execution(memory={"host": "48KiB"}, eviction="lru") as run:
        found, _ = call(layer, paged, paged, grad=False)
    assert np.array_equal(found.numpy(), expected.numpy())
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size("48KiB")
    assert "sort" in layer.explain()


def test_derivatives_keep_nothing_of_edges(paged: Any) -> None:
    """Numbers of edges, 24 bytes for each, would not fit: they are read again, within budget."""
    expected = results(Sorted(), paged.in_memory(), paged)
    with tg.execution(memory={"host": "48KiB"}, eviction="lru") as run:
        found = results(Sorted(), paged, paged)
        report = run.memory_report()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert report["peak_bytes"]["host"] <= parse_size("48KiB") < 24 * EDGES


def test_second_derivatives(paged: Any) -> None:
    def curved(graph: Any) -> np.ndarray:
        out, (x, w) = call(Sorted(), graph, paged)
        slope = ag.grad((out * out).sum(), x)
        return ag.grad((slope * slope).sum(), w).numpy()

    np.testing.assert_allclose(curved(paged), curved(paged.in_memory()), rtol=1e-4)


def test_forward_derivatives(paged: Any) -> None:
    """Of a call, and of its gradient."""
    direction = np.random.default_rng(6).random((NODES, WIDTH)).astype(np.float32)
    x0, w = (tg.from_numpy(paged.field(*n).numpy()) for n in (("src", "x"), ("edge", "w")))

    def along(graph: Any) -> list[np.ndarray]:
        def value(x: tg.Tensor) -> tg.Tensor:
            return Sorted()(graph=graph, ndata={"x": x}, edge={"w": w})

        def slope(x: tg.Tensor) -> tg.Tensor:
            out = value(x)
            return ag.grad((out * out).sum(), x)

        found = [ag.jvp(f, (x0,), (tg.from_numpy(direction),))[1] for f in (value, slope)]
        return [one.numpy() for one in found]

    for one, other in zip(along(paged), along(paged.in_memory()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_damaged_edges_are_found(paged: Any, tmp_path: Path) -> None:
    path = paged.in_memory().save(tmp_path / "g")
    entry = tg.Graph.open(path)._container.entry("dst.index")
    with path.open("r+b") as file:
        file.seek(entry.offset + entry.nbytes // 2)
        file.write(b"\xff\xff\xff\x7f")
    with pytest.raises(InvalidFile, match="damaged"):
        Sorted()(graph=tg.Graph.open(path), ndata={"x": tg.ones((NODES, WIDTH))},
                 edge={"w": tg.ones((EDGES, 1))})  # fmt: skip
