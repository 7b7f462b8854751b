"""What `explain` tells of a call of native tensors over a graph in a file before it is made."""

from typing import Any

import pytest

import tiga as tg
from tests.stored_graphs import BUDGETS, NODES, WIDTH, stored_graph


class WeightedSum(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w[:, None] * src.x


class Both(tg.MessagePassing):
    """Two results of nodes."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w[:, None] * src.x

    def node(self, dst: Any, aggregate: Any) -> Any:
        return aggregate * 2.0, aggregate * dst.x


@pytest.fixture(scope="module", params=["random", "local"])
def paged(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return stored_graph(request.param, tmp_path_factory.mktemp("g") / "g")


def predictions(kernel: Any, graph: Any, **fields: Any) -> list[Any]:
    from tiga.frontends.tensor.messages.forecast import foretold

    return foretold(kernel, graph, [fields.get(n) for n in ("src", "dst", "edge", "ndata")], {})[1]


def tensors(graph: Any) -> tuple[Any, Any]:
    named = graph.field("src", "x"), graph.field("edge", "w")
    x, w = (tg.from_numpy(field.numpy()).requires_grad_() for field in named)
    return x, w


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_run_does_what_was_told(budget: str, paged: Any) -> None:
    layer, (x, w) = WeightedSum(), tensors(paged)
    call = {"ndata": {"x": x}, "edge": {"w": w}}
    traffic, read = paged.traffic, []
    with tg.execution(memory={"host": budget}) as run:
        told = predictions(layer, paged, **call)
        read.append(traffic.read)
        out = layer(graph=paged, **call)
        read.append(traffic.read)
        gradients = tg.autograd.grad(out.sum(), [x, w])
        read.append(traffic.read)
        peak = run.memory_report()["peak_bytes"]
    assert [g.shape for g in gradients] == [x.shape, w.shape]
    assert [p.what for p in told] == ["forward, saving for gradients", "gradients"]
    for prediction, before, after in zip(told, read, read[1:], strict=False):
        assert prediction.plan.read / 1.5 <= after - before <= 1.5 * prediction.plan.read
    for tier in ("host", "nvme"):
        assert peak[tier] <= max(p.peak[tier] for p in told)


def test_each_result_has_a_gradient(paged: Any) -> None:
    x, w = tensors(paged)
    told = predictions(Both(), paged, ndata={"x": x}, edge={"w": w})
    gradients = ["gradients of output 0", "gradients of output 1"]
    assert [p.what for p in told] == ["forward, saving for gradients", *gradients]


def test_nothing_is_computed_or_read_for_it(paged: Any) -> None:
    x, w = (field.detach() for field in tensors(paged))
    later, before = x * 2.0, paged.traffic.read
    text = WeightedSum().explain(graph=paged, ndata={"x": later}, edge={"w": w})
    # Where rows end, and some of the sources: of the graph, and at the first call for it only.
    assert paged.traffic.read - before < min(x.nbytes, w.nbytes) // 2
    before = paged.traffic.read
    WeightedSum().explain(graph=paged, ndata={"x": later}, edge={"w": w})
    assert paged.traffic.read == before
    assert later._array is None
    assert "forward: at most" in text
    assert "pages" in text
    assert "of 'host'" in text
    assert "gradients" not in text


def test_values_that_are_not_computed_yet_are_told_of_as_they_will_lie(paged: Any) -> None:
    w = tensors(paged)[1].detach()
    for x in (tg.full((NODES, WIDTH), 2.0), tg.arange(NODES * WIDTH).reshape(NODES, WIDTH) * 0.5):
        layer, call = WeightedSum(), {"ndata": {"x": x}, "edge": {"w": w}}
        with tg.execution(memory={"host": "3MiB"}) as run:
            (told,) = predictions(layer, paged, **call)
            before = paged.traffic.read
            layer(graph=paged, **call)
            read = paged.traffic.read - before
            assert run.memory_report()["peak_bytes"]["host"] <= told.peak["host"] + x.nbytes
        assert told.plan.read / 1.5 <= read <= 1.5 * told.plan.read
