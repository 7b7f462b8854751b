"""Calls that cannot be fused over graphs in files: block by block through torch, within budgets."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import knobs
from tiga.errors import InvalidFile, OutOfBudget, Unfusable, UnsupportedByBackend
from tiga.runtime.tiers import parse_size

torch = pytest.importorskip("torch")

from tiga.frontends.torch.inspection import foretold  # noqa: E402

NODES, EDGES, WIDTH = 300, 4000, 4


class Sorted(tg.MessagePassing):
    """Fields of both ends and of edges, sorted features, and fields of the row in `node`."""

    reducer = tg.mean()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sort(src.x * edge.w[:, None], dim=-1).values - dst.x

    def node(self, dst: Any, aggregate: Any) -> Any:
        return aggregate * dst.x


class Spectrum(tg.MessagePassing, torch.nn.Module):
    """Weights, and two reducers of which one keeps the values of edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        message = torch.fft.rfft(src.x @ self.weight).abs() * edge.w[:, None]
        return {"largest": tg.max()(message), "each": tg.each()(torch.special.i0e(src.x))}


class Dropped(tg.MessagePassing):
    """Random numbers, the same in the backward pass."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        kept = torch.nn.functional.dropout(src.x, 0.5, training=True)
        return torch.special.i0e(kept) * edge.w[:, None]


class SortsRows(tg.MessagePassing):
    reducer = tg.sum()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]

    def node(self, dst: Any, aggregate: Any) -> Any:
        return torch.sort(aggregate, dim=-1).values


KERNELS = [Sorted, Spectrum, Dropped, SortsRows]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Any]]:
    """A graph in memory, and in a file with its fields."""
    made: dict[Any, tuple[Any, Any]] = {}
    folder = tmp_path_factory.mktemp("graphs")

    def get(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
        if (kind, dtype) not in made:
            rng = np.random.default_rng(5)
            dst = np.sort(rng.integers(0, NODES, EDGES))
            src = rng.integers(0, NODES, EDGES)
            if kind == "local":
                src = (dst + rng.integers(0, 9, EDGES)) % NODES
            if kind == "hub":
                dst[500:2000] = dst[500]
                dst.sort()
            if kind == "gaps":
                dst = dst // 7 * 7
            row_ptr = np.concatenate(([0], np.cumsum(np.bincount(dst, minlength=NODES))))
            graph = tg.Graph.from_csr(row_ptr, src, num_src=NODES)
            x, w = fields(dtype)
            path = graph.save(folder / f"{kind}-{dtype}", {"src": {"x": x}, "edge": {"w": w}})
            made[kind, dtype] = graph, tg.Graph.open(path)
        return made[kind, dtype]

    return get


def fields(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(NODES, WIDTH, generator=generator).to(dtype)
    return x, torch.rand(EDGES, generator=generator).to(dtype)


def attached(paged: Any) -> list[torch.Tensor]:
    pair = paged.field("src", "x").numpy(), paged.field("edge", "w").numpy()
    return [torch.from_numpy(array) for array in pair]


def results(kernel: Any, graph: Any, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """The outputs, and the gradients of all inputs and parameters."""
    torch.manual_seed(7)
    x.requires_grad_()
    w.requires_grad_()
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum((o.float() * torch.linspace(-1, 1, o.numel()).view(o.shape)).sum() for o in outs)
    wanted = [x, w, *(kernel.parameters() if isinstance(kernel, torch.nn.Module) else ())]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [*(o.detach() for o in outs), *(g for g in found if g is not None)]


@pytest.mark.parametrize("kind", ["random", "local", "hub", "gaps"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_same_bits_as_in_memory_in_the_same_blocks(kernel: Any, kind: str, stored: Any) -> None:
    graph, paged = stored(kind)
    with knobs.scope(memory_bound=100_000):
        expected = results(kernel(), graph, *fields())
        layer = kernel()
        with tg.execution(memory={"host": "2MiB"}) as run:
            found = results(layer, paged, *attached(paged))
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size("2MiB")
    assert "blocks of destinations through torch" in layer.explain()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("kind", ["random", "local"])
def test_results_in_files_within_a_small_budget(
    kind: str, dtype: torch.dtype, stored: Any, tmp_path: Path
) -> None:
    """Blocks are smaller than in memory, so gradients are added up in another order."""
    graph, paged = stored(kind, dtype)
    expected = results(Sorted(), graph, *fields(dtype))
    budget, layer = "32KiB", Sorted()
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        found = results(layer, paged, *attached(paged))
    report = run.memory_report()["peak_bytes"]
    assert report["host"] <= parse_size(budget)
    assert report["nvme"] > 0
    assert torch.equal(found[0], expected[0])
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other)


class Curved(tg.MessagePassing, torch.nn.Module):
    """Weights, random numbers, values of edges, and fields of the row in `node`."""

    def __init__(self, drops: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.drops = drops

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        message = torch.special.i0e(src.x @ self.weight - dst.x) * edge.w[:, None] ** 2
        kept = torch.nn.functional.dropout(message, 0.5, training=self.drops)
        return {"each": tg.each()(kept), "sum": tg.sum()(torch.tanh(kept))}

    def node(self, dst: Any, aggregate: Any) -> Any:
        return {"each": aggregate["each"], "sum": torch.tanh(aggregate["sum"]) * dst.x**2}


def slopes(kernel: Any, graph: Any, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """First and second derivatives of fields, weights and what the results are multiplied with."""
    torch.manual_seed(7)
    leaves = [x.requires_grad_(), w.requires_grad_(), *kernel.parameters()]
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    factor = torch.linspace(-1, 1, out["sum"].numel()).view(out["sum"].shape).requires_grad_()
    loss = (out["sum"] * factor).sum() + (out["each"] ** 2).sum()
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    again = torch.autograd.grad(sum((g**2).sum() for g in first), [*leaves, factor])
    return [*(g.detach() for g in first), *again]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("kind", ["local", "hub"])
def test_second_derivatives(kind: str, drops: bool, stored: Any, tmp_path: Path) -> None:
    """In the same blocks the bits of memory; in smaller ones, sums have another order. Blocks that
    draw random numbers stay the same, and have to fit with all that a second derivative takes."""
    graph, paged = stored(kind)
    with knobs.scope(memory_bound=400_000):
        expected = slopes(Curved(drops), graph, *fields())
        small = "3MiB" if kind == "hub" else "640KiB"
        for budget, same in (("64MiB", True), *([] if drops else [(small, False)])):
            with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
                found = slopes(Curved(drops), paged, *attached(paged))
            assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)
            for one, other in zip(found, expected, strict=True):
                assert torch.equal(one, other) or not same
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_edges_of_a_row_that_do_not_fit_together_have_no_second_derivative(stored: Any) -> None:
    _, paged = stored("hub")
    x, w = (value.requires_grad_() for value in attached(paged))
    with tg.execution(memory={"host": "512KiB"}):
        out = Sorted()(graph=paged, ndata={"x": x}, edge={"w": w})
        (first,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
        with pytest.raises(OutOfBudget, match=r"has 1\d\d\d edges.*derivatives of order 2.*Raise"):
            torch.autograd.grad(first.sum(), x)


def test_fields_in_memory_and_what_was_written_to_them(stored: Any) -> None:
    graph, paged = stored("random")
    x, w = attached(paged)
    x += 1
    expected = Sorted()(graph=graph, ndata={"x": x.clone()}, edge={"w": w.clone()})
    assert torch.equal(Sorted()(graph=paged, ndata={"x": x}, edge={"w": w}), expected)


def test_against_torch(stored: Any) -> None:
    graph, paged = stored("random")
    x, w = fields()
    src, dst = (torch.as_tensor(np.array(one)).long() for one in graph.coo()[:2])
    messages = torch.sort(x[src] * w[:, None], dim=-1).values.double() - x[dst]
    degrees = torch.bincount(dst, minlength=NODES)[:, None]
    sums = torch.zeros(NODES, WIDTH, dtype=torch.float64).index_add_(0, dst, messages)
    found = Sorted()(graph=paged, ndata={"x": x}, edge={"w": w})
    expected = (sums / degrees.clamp(min=1) * x).float()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(5, 4, 0), (0, 0, 0), (3, 0, 0), (1, 1, 1)])
def test_small_and_empty_graphs(shape: tuple[int, int, int], tmp_path: Path) -> None:
    class Ends(tg.MessagePassing):
        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return torch.special.i0e(src.x) * edge.w[:, None]

    num_src, num_dst, edges = shape
    ends = np.zeros((2, edges), np.int64)
    graph = tg.Graph.from_coo(*ends, num_src=num_src, num_dst=num_dst)
    paged = tg.Graph.open(graph.save(tmp_path / "g"))
    x, w = torch.ones(num_src, 2, requires_grad=True), torch.full((edges,), 2.0)
    with tg.execution(memory={"host": "64KiB"}):
        out = Ends()(graph=paged, src={"x": x}, edge={"w": w})
        (gradient,) = torch.autograd.grad(out.sum(), x)
    expected = Ends()(graph=graph, src={"x": x}, edge={"w": w})
    assert torch.equal(out, expected)
    assert torch.equal(gradient, torch.autograd.grad(expected.sum(), x)[0])


def test_many_rows_without_edges_are_cut_too(tmp_path: Path) -> None:
    graph = tg.Graph.from_coo([3], [40_000], num_src=5, num_dst=50_000)
    paged = tg.Graph.open(graph.save(tmp_path / "g"))
    layer, x = SortsRows(), torch.rand(5, WIDTH)
    with tg.execution(memory={"host": "256KiB"}, spill_dir=tmp_path) as run:
        out = layer(graph=paged, src={"x": x}, edge={"w": torch.ones(1)})
    assert run.memory_report()["peak_bytes"]["host"] <= 2**18
    assert out.count_nonzero() == WIDTH
    assert torch.equal(out[40_000], x[3].sort().values)


def test_a_row_whose_messages_do_not_fit_is_refused(stored: Any) -> None:
    _, paged = stored("hub")
    x, w = attached(paged)
    with (
        tg.execution(memory={"host": "16KiB"}),
        pytest.raises(OutOfBudget, match=r"destination \d+ has 1\d\d\d edges.*sort.*Raise memory"),
    ):
        Sorted()(graph=paged, ndata={"x": x}, edge={"w": w})


def test_gradients_of_tables_that_do_not_fit(stored: Any) -> None:
    """In memory they are fused: forward and backward agree up to rounding."""

    class Embedded(tg.MessagePassing, torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table = torch.nn.Parameter(torch.randn(70_000, WIDTH))

        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return self.table[edge.kind] * src.x

    graph, paged = stored("random")
    x, kind = fields()[0], torch.arange(EDGES) * 7919 % 70_000
    layer = Embedded()
    grads = []
    for one, budget in ((graph, None), (paged, "1MiB")):
        with tg.execution(memory={} if budget is None else {"host": budget}):
            out = layer(graph=one, ndata={"x": x}, edge={"kind": kind})
        grads.append((out.detach(), *torch.autograd.grad((out**2).sum(), layer.table)))
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected)
    assert "the gradient of a large table" in layer.explain()


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("budget", ["2MiB", "8MiB"])
def test_a_run_does_what_was_told(budget: str, local: bool, tmp_path: Path) -> None:
    rng, nodes, edges = np.random.default_rng(3), 6000, 50_000
    dst = np.sort(rng.integers(0, nodes, edges))
    src = (dst + rng.integers(0, 30, edges)) % nodes if local else rng.integers(0, nodes, edges)
    x, w = rng.random((nodes, 16), np.float32), rng.random(edges, np.float32)
    graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    paged = tg.Graph.open(graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    layer, traffic = Sorted(), paged.traffic
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        x, w = (value.requires_grad_() for value in attached(paged))
        why, told = foretold(layer, paged, (None, None, {"w": w}, {"x": x}), {})
        assert "not be fused" in why[0]
        marks = [(traffic.read, traffic.written)]
        out = layer(graph=paged, ndata={"x": x}, edge={"w": w})
        marks.append((traffic.read, traffic.written))
        torch.autograd.grad(out.sum(), [x, w])
        marks.append((traffic.read, traffic.written))
    assert [p.what for p in told] == ["forward", "gradients"]
    for prediction, (before, after) in zip(told, pairwise(marks), strict=True):
        read, written = after[0] - before[0], after[1] - before[1]
        assert read / 1.5 <= prediction.plan.read <= 1.5 * read
        assert written / 1.5 <= prediction.plan.written <= 1.5 * written
    assert run.memory_report()["peak_bytes"]["host"] <= max(p.peak["host"] for p in told)
    assert any("through torch" in line for p in told for line in p.told())


def test_a_backward_in_another_thread_is_within_the_budgets_of_its_forward(stored: Any) -> None:
    _, paged = stored("random")
    with tg.execution(memory={"host": "40KiB"}) as run:
        x, w = (value.requires_grad_() for value in attached(paged))
        out = Sorted()(graph=paged, ndata={"x": x}, edge={"w": w})
    cotangent, found = torch.ones_like(out), []
    before = run.memory_report()["peak_bytes"]["nvme"]
    thread = Thread(target=lambda: found.extend(torch.autograd.grad(out, [x, w], cotangent)))
    thread.start()
    thread.join()
    assert len(found) == 2
    report = run.memory_report()["peak_bytes"]
    assert report["host"] <= parse_size("40KiB")
    assert report["nvme"] > before  # a gradient of an edge field does not fit


@pytest.mark.parametrize("name", ["dst.index", "dst.row_ptr"])
def test_damaged_edges_are_found(name: str, stored: Any, tmp_path: Path) -> None:
    graph, _ = stored("random")
    path = graph.save(tmp_path / "g")
    entry = tg.Graph.open(path)._container.entry(name)
    with path.open("r+b") as file:
        file.seek(entry.offset + entry.nbytes // 2 // entry.row_bytes * entry.row_bytes)
        file.write(b"\xff" * (entry.row_bytes - 1) + b"\x7f")
    with pytest.raises(InvalidFile, match="damaged"):
        SortsRows()(
            graph=tg.Graph.open(path), ndata={"x": fields()[0]}, edge={"w": torch.ones(EDGES)}
        )


def test_what_is_refused_still(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, paged = stored("random")
    x, w = (value.requires_grad_() for value in attached(paged))
    layer = Sorted()

    def call(x: torch.Tensor) -> torch.Tensor:
        return layer(graph=paged, ndata={"x": x}, edge={"w": w})

    with pytest.raises(UnsupportedByBackend, match=r"no transform.*aten\.sort"):
        torch.func.grad(lambda x: call(x).sum())(x)
    monkeypatch.setenv("TIGA_STRICT", "1")
    with pytest.raises(Unfusable, match=r"aten\.sort.*test_paged_blocks\.py"):
        call(x)
