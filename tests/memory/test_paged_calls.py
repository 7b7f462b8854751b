"""What surrounds a call in torch, over a graph in a file: compilers, transforms, 16-bit fields."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.backends.llvm.paged.steps import MOST_PLANS
from tiga.paging.plan import plan_walk
from tiga.paging.stage import Stage

torch = pytest.importorskip("torch")

NODES, EDGES, WIDTH = 500, 9000, 4


class Ends(tg.MessagePassing):
    """Two outputs of different reducers, and a dict of what a node makes of them."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.sum()(src.x * edge.w[:, None]), tg.max()(src.x)

    def node(self, dst: Any, aggregate: Any) -> Any:
        total, largest = aggregate
        return {"total": torch.tanh(total), "largest": largest + dst.x}


class Largest(tg.MessagePassing):
    reducer = tg.max()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sigmoid(src.x) * edge.w[:, None]


class Linear(tg.MessagePassing, torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.map(src.x) * edge.w[:, None]


class Typed(tg.MessagePassing, torch.nn.Module):
    """A table by the kind of a node, multiplied with what a walk leaves in a file."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(5, WIDTH))
        self.mix = torch.nn.Parameter(torch.randn(WIDTH * WIDTH, WIDTH))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]

    def node(self, dst: Any, aggregate: Any) -> Any:
        pairs = aggregate[:, :, None] * self.table[dst.x[:, 0].abs().long()][:, None, :]
        return pairs.flatten(1) @ self.mix


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    graph = tg.Graph.from_coo(*rng.integers(0, NODES, (2, EDGES)), num_src=NODES, num_dst=NODES)
    path = graph.save(tmp_path_factory.mktemp("g") / "g")
    paged = tg.Graph.open(path)
    return paged.in_memory(), paged


def fields(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Few distinct values, so that maxima have ties."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(-3, 4, (NODES, WIDTH), generator=generator).to(dtype)
    return x, torch.randint(1, 3, (EDGES,), generator=generator).to(dtype)


def with_gradients(kernel: Any, graph: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    x, w = (field.requires_grad_() for field in fields(dtype))
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum((o.float() ** 2).sum() for o in outs)
    return [*(o.detach() for o in outs), *torch.autograd.grad(loss, [x, w])]


def check(run: Callable[[Any], list[torch.Tensor]], both: tuple[Any, Any]) -> None:
    """The same bits on both graphs."""
    expected = run(both[0])
    with tg.execution(memory={"host": "256KiB"}):
        found = run(both[1])
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [Ends, Largest, Weighted])
def test_outputs_ties_and_types(kernel: Any, dtype: torch.dtype, both: Any) -> None:
    check(lambda graph: with_gradients(kernel(), graph, dtype), both)


def test_under_autocast(both: Any) -> None:
    def run(graph: Any) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return with_gradients(Linear(), graph, torch.float32)

    check(run, both)


def test_gradients_of_tables_by_kinds_of_nodes(both: Any, tmp_path: Path) -> None:
    """What is summed by kind lies in a file."""

    def run(graph: Any) -> list[torch.Tensor]:
        (x, w), layer = fields(), Typed()
        out = layer(graph=graph, ndata={"x": x.requires_grad_()}, edge={"w": w})
        return [out.detach(), *torch.autograd.grad((out**2).sum(), [x, *layer.parameters()])]

    expected = run(both[0])
    with tg.execution(memory={"host": "64KiB"}, spill_dir=tmp_path):
        found = run(both[1])
    assert all(map(torch.equal, found, expected))


def test_second_derivatives_of_a_nonlinear_message(both: Any) -> None:
    def run(graph: Any) -> list[torch.Tensor]:
        x, w = fields(torch.float64)
        x.requires_grad_()
        out = Weighted()(graph=graph, ndata={"x": x}, edge={"w": w})
        (first,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
        return [first.detach(), torch.autograd.grad((first**2).sum(), x)[0]]

    check(run, both)


def test_under_transforms(both: Any) -> None:
    def run(graph: Any) -> list[torch.Tensor]:
        (x, w), layer = fields(), Weighted()

        def out(x: torch.Tensor) -> torch.Tensor:
            return layer(graph=graph, ndata={"x": x}, edge={"w": w})

        batch = torch.stack([x, 2 * x, -x])
        return [
            torch.func.grad(lambda x: out(x).sum())(x),
            torch.func.vmap(out)(batch),
            *torch.func.jvp(out, (x,), (x.flip(0),)),
        ]

    check(run, both)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's, at any break
def test_a_compiled_function_breaks_at_the_call(both: Any) -> None:
    layer = Weighted()

    def step(graph: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return layer(graph=graph, ndata={"x": x * 2}, edge={"w": w}) + 1

    def run(compiled: Any) -> Callable[[Any], list[torch.Tensor]]:
        def of(graph: Any) -> list[torch.Tensor]:
            x, w = fields()
            x.requires_grad_()
            out = compiled(graph, x, w)
            return [out.detach(), torch.autograd.grad(out.sum(), x)[0]]

        return of

    compiled = torch.compile(step, backend="aot_eager")
    expected, found = run(step)(both[1]), run(compiled)(both[1])
    assert all(map(torch.equal, found, expected))
    whole = torch.compile(step, backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="in a file"):
        whole(both[1], *fields())


@pytest.mark.parametrize("kernel", [Weighted, Linear, Largest])
def test_gradients_of_totals(
    kernel: Any, both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their cotangents are one row for all nodes, which pages need not pick."""
    pages: list[Any] = []
    uniform = Stage._others_uniform

    def counted(stage: Stage, page: Any) -> None:
        pages.append(page)
        uniform(stage, page)

    monkeypatch.setattr(Stage, "_others_uniform", counted)

    def run(graph: Any) -> list[torch.Tensor]:
        x, w = (field.requires_grad_() for field in fields())
        out = kernel()(graph=graph, ndata={"x": x}, edge={"w": w})
        return list(torch.autograd.grad(out.sum(), [x, w]))

    check(run, both)
    assert bool(pages) == (kernel is not Largest)  # its gradient reads more at that end


def test_pages_have_as_few_rows_as_were_asked_for(both: Any) -> None:
    """Where no sum depends on tasks, pages divide them."""
    memory, paged = both
    layer, (x, w) = Weighted(), fields()
    with tg.execution(page_rows=7):
        found = layer(graph=paged, ndata={"x": x}, edge={"w": w})
    assert torch.equal(found, layer(graph=memory, ndata={"x": x}, edge={"w": w}))
    plans = [part.cpu().executable.pages for _, part in layer._inspected().parts()]
    assert any(plan is not None and plan.pages >= NODES / 7 for plan in plans)


def test_a_backward_in_another_thread_is_within_the_budgets_of_its_forward(both: Any) -> None:
    """Threads of autograd's own, which a GPU has, do not see the scope of the call."""
    memory, paged = both
    layer, found = Weighted(), list[torch.Tensor]()
    x, w = (field.requires_grad_() for field in fields())
    budget = 96 * 1024
    with tg.execution(memory={"host": budget}) as run:
        out = layer(graph=paged, ndata={"x": x}, edge={"w": w})
        before = run.memory_report()["peak_bytes"]
        loss = out.sum()
        thread = Thread(target=lambda: found.extend(torch.autograd.grad(loss, [x, w])))
        thread.start()
        thread.join()
        after = run.memory_report()["peak_bytes"]
    assert after != before
    assert after["host"] <= budget
    x2, w2 = (field.requires_grad_() for field in fields())
    expected = torch.autograd.grad(
        layer(graph=memory, ndata={"x": x2}, edge={"w": w2}).sum(), [x2, w2]
    )
    assert all(map(torch.equal, found, expected))


def test_pages_are_planned_once_for_the_same_memory(
    both: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def counted(*given: Any) -> Any:
        planned.append(given[1].nbytes)
        return plan_walk(*given)

    monkeypatch.setattr("tiga.backends.llvm.paged.steps.plan_walk", counted)
    memory, paged = both[0], tg.Graph.open(both[1].path)
    layer, (x, w) = Weighted(), fields()
    expected = layer(graph=memory, ndata={"x": x}, edge={"w": w})
    for budget in ("1MiB", "1MiB", "2MiB", "1MiB"):
        with tg.execution(memory={"host": budget}):
            assert torch.equal(layer(graph=paged, ndata={"x": x}, edge={"w": w}), expected)
    assert len(planned) == 2
    for i in range(20):  # and the graph does not remember every budget that there ever was
        with tg.execution(memory={"host": 2**20 + 2**12 * i}):
            layer(graph=paged, ndata={"x": x}, edge={"w": w})
    kept = [found for key, found in paged._kept.items() if key[0] == "pages"]
    assert all(len(found) <= MOST_PLANS for found in kept)
