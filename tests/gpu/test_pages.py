"""Graphs in files on a GPU: the bits of the same call on the graph in the GPU's memory."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tiga as tg
from tests.gpu.paged_harness import (
    WIDTH,
    check,
    fields,
    saved,
    with_damage,
    with_gradients,
    within,
)
from tiga.backends.triton.paged import calls
from tiga.errors import InvalidFile, OutOfBudget

pytestmark = pytest.mark.usefixtures("where")


class Difference(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.relu(src.x - dst.x) * edge.w[:, None]


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


class Smooth(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sigmoid(src.x) * edge.w[:, None]


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer((src.x * dst.x).sum(-1) * edge.w, src.x)


class Ends(tg.MessagePassing):
    """Outputs of different reducers, and a dict of what a node makes of them."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.x * edge.w[:, None]), tg.max()(src.x)

    def node(self, dst: Any, aggregate: Any) -> Any:
        average, largest = aggregate
        return {"average": torch.tanh(average), "largest": largest + dst.x}


class Deviation(tg.MessagePassing):
    reducer = tg.std()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return saved(tmp_path_factory.mktemp("uneven"), "uneven")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return saved(tmp_path_factory.mktemp("long"), "long")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return saved(tmp_path_factory.mktemp("sparse"), "sparse")


class Numbers(tg.MessagePassing):
    """Single numbers: kernels take tiles of edges, whatever their rows."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.n * edge.w


def test_tiles_of_edges(sparse: Any, where: Any) -> None:
    kernel = Numbers()

    def run(graph: Any, given: list[Any]) -> list[Any]:
        number, w = given[0][:, 0].detach().clone().requires_grad_(), given[1]
        out = kernel(graph=graph, ndata={"n": number}, edge={"w": w})
        return [out.detach(), *torch.autograd.grad((out**2).sum().cpu(), (number, w))]

    for budget in ("12KiB", "64KiB", None):
        assert within(check(run, sparse, where, budget))
    assert any("in their order" in str(schedule) for schedule in kernel.schedules)


def gradients_of(kernel: Any) -> Callable[[Any, list[Any]], list[Any]]:
    return lambda graph, given: with_gradients(kernel(), graph, given)


@pytest.mark.parametrize("kernel", [Difference, Attention, Ends, Deviation])
def test_results_in_files(
    kernel: Any, uneven: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LESS_AND_LESS", (calls.Keeps(False, False),))
    report = check(gradients_of(kernel), uneven, where, "16KiB", host="1B")
    assert within(report)
    assert report["peak_bytes"]["nvme"] > 0


@pytest.mark.parametrize("kernel", [Difference, Ends])
def test_results_in_memory_of_the_host(
    kernel: Any, uneven: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LESS_AND_LESS", (calls.Keeps(False, False),))
    report = check(gradients_of(kernel), uneven, where, "16KiB", host="1MiB")
    assert within(report)
    assert report["peak_bytes"]["nvme"] == 0
    assert report["peak_bytes"]["host"] > 0


@pytest.mark.parametrize("budget", ["40KiB", None])
def test_results_on_the_device(budget: Any, uneven: Any, where: Any) -> None:
    report = check(gradients_of(Difference), uneven, where, budget)
    assert within(report)
    assert report["peak_bytes"]["nvme"] == 0


def test_results_are_charged_as_long_as_something_views_them(uneven: Any, where: Any) -> None:
    opened = uneven[1]
    x, w = (field.detach() for field in fields(opened, where, torch.float32, in_file=True))
    with tg.execution(memory={"device": "64MiB"}) as scope:
        out = Difference()(graph=opened, ndata={"x": x}, edge={"w": w})
        held = scope.memory_report()["live_bytes"]["device"]
        view = out[:1]
        assert held == out.numel() * 4
        del out
        assert scope.memory_report()["live_bytes"]["device"] == held
        del view
        assert scope.memory_report()["live_bytes"]["device"] == 0


class Each(tg.MessagePassing):
    """Values of edges that the first loop over a row stores, and the last."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        score = src.x * edge.w[:, None] - dst.x
        return tg.each()(score), tg.edge_softmax()(score)


def test_values_of_edges_of_a_row_that_does_not_fit_a_page(long: Any, where: Any) -> None:
    def call(graph: Any, given: list[Any]) -> list[Any]:
        x, w = given
        return list(Each()(graph=graph, ndata={"x": x}, edge={"w": w}))

    assert within(check(call, long, where, "200KiB"))


@pytest.mark.parametrize("kernel", [Difference, Attention])
def test_a_row_that_does_not_fit_a_page(kernel: Any, long: Any, where: Any) -> None:
    assert within(check(gradients_of(kernel), long, where, "80KiB"))


class Mapped(tg.MessagePassing, torch.nn.Module):
    """A product of node values, and its gradients: it takes whole arrays."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.relu(self.map(src.x)) * edge.w[:, None]


def steps(text: str) -> set[str]:
    """The lines on pages of steps."""
    lines = map(str.strip, text.splitlines())
    return {line for line in lines if re.match(r"(walk|rows|library).* pages, at most", line)}


@pytest.mark.parametrize("budget", ["16KiB", "40KiB"])
def test_what_is_told_before_a_call(budget: str, uneven: Any, where: Any) -> None:
    opened, kernel = uneven[1], Difference()
    with tg.execution(memory={"device": budget, "host-pinned": budget}) as scope:
        x, w = fields(opened, where, torch.float32, in_file=True)
        given = {"graph": opened, "ndata": {"x": x}, "edge": {"w": w}}
        told = kernel.explain(**given)
        assert scope.memory_report()["peak_bytes"]["device"] == 0
        kernel(**given)
    assert "'device'" in told
    assert steps(kernel.explain())
    assert steps(kernel.explain()) <= steps(told)


def test_products_of_node_values(uneven: Any, where: Any) -> None:
    kernel = Mapped().to(where)

    def run(graph: Any, given: list[Any]) -> list[Any]:
        out = kernel(graph=graph, ndata={"x": given[0]}, edge={"w": given[1]})
        leaves = [*given, *kernel.parameters()]
        return [out.detach(), *torch.autograd.grad((out**2).sum().cpu(), leaves)]

    check(run, uneven, where, "24KiB")


class Bent(tg.MessagePassing, torch.nn.Module):
    """Products of node values whose matrix is differentiated twice: outer sums over nodes."""

    reducer = tg.var()

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.matrix = torch.nn.Parameter(torch.randn(16, 16))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sigmoid(torch.cat([dst.x] * 4, -1)) @ self.matrix


def test_outer_sums_over_nodes(uneven: Any, where: Any) -> None:
    kernel = Bent().to(where)

    def run(graph: Any, given: list[Any]) -> list[Any]:
        out = kernel(graph=graph, ndata={"x": given[0]}, edge={"w": given[1]})
        leaves = [given[0], kernel.matrix]
        first = torch.autograd.grad(out.sum().cpu(), leaves, create_graph=True)
        return [*first, *torch.autograd.grad(sum((g**2).sum().cpu() for g in first), leaves)]

    check(run, uneven, where, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(dtype: Any, uneven: Any, where: Any) -> None:
    check(gradients_of(Difference), uneven, where, None, dtype, in_file=False)


def test_a_row_that_cannot_be_divided_so_far(long: Any, where: Any) -> None:
    with pytest.raises(OutOfBudget, match="host-pinned"):
        check(gradients_of(Difference), long, where, "24KiB")


def test_damage_is_found_before_kernels_read(tmp_path: Path, uneven: Any, where: Any) -> None:
    opened = uneven[1]
    damaged = with_damage(opened, tmp_path / "g", where)
    with pytest.raises(InvalidFile, match="out of the range"):
        with_gradients(Difference(), damaged, fields(opened, where, torch.float32, True))


class Maps(tg.Reducer):
    """Maps x -> a x + b, one after the other, applied to 1: long rows are split."""

    associative = True

    def identity(self) -> Any:
        return 1.0, 0.0

    def lift(self, message: Any) -> Any:
        return torch.sigmoid(message), message

    def combine(self, left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    def finalize(self, state: Any) -> Any:
        return state[0] + state[1]


class Fading(tg.Reducer):
    """Half of what was: rows stay whole."""

    def identity(self) -> Any:
        return 0.0

    def lift(self, message: Any) -> Any:
        return message

    def combine(self, left: Any, right: Any) -> Any:
        return 0.5 * left + right

    def finalize(self, state: Any) -> Any:
        return torch.tanh(state)


@pytest.mark.parametrize("reducer", [Maps, Fading])
def test_folds_in_edge_order(reducer: Any, uneven: Any, where: Any) -> None:
    kernel = Weighted()
    kernel.reducer = reducer()

    def run(graph: Any, given: list[Any]) -> list[Any]:
        with torch.no_grad():
            return [kernel(graph=graph, ndata={"x": given[0]}, edge={"w": given[1]})]

    assert within(check(run, uneven, where, "24KiB"))


@pytest.mark.parametrize("reducer", [Maps, Fading])
def test_gradients_of_folds(reducer: Any, uneven: Any, where: Any) -> None:
    """Sums at the far ends of edges may have another order than in memory."""
    memory, opened = uneven
    kernel = Weighted()
    kernel.reducer = reducer()
    expected = with_gradients(kernel, memory, fields(opened, where, torch.float32, False))
    with tg.execution(memory={"device": "64MiB", "host-pinned": "32KiB"}):
        found = with_gradients(kernel, opened, fields(opened, where, torch.float32, True))
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted.cpu(), rtol=1e-5, atol=1e-5)


def test_second_derivatives(uneven: Any, where: Any) -> None:
    def run(graph: Any, given: list[Any]) -> list[Any]:
        x, w = given
        out = Smooth()(graph=graph, ndata={"x": x}, edge={"w": w})
        (first,) = torch.autograd.grad((out**2).sum().cpu(), x, create_graph=True)
        return [first.detach(), *torch.autograd.grad((first**2).sum(), given)]

    check(run, uneven, where, "24KiB")
