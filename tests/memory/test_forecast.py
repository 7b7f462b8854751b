"""What `explain` tells of a call over a graph in a file before it is made."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tiga as tg  # noqa: E402
from tests.memory.test_paged import Attention, Chain, Largest, WeightedSum  # noqa: E402
from tests.stored_graphs import BUDGETS, WIDTH, stored_graph  # noqa: E402
from tiga.errors import OutOfBudget, Unfusable  # noqa: E402


class Layer(tg.MessagePassing, torch.nn.Module):
    """Node products before and after a walk."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.message = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.update = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.relu(self.message(torch.cat([src.x, dst.x], -1))) * edge.w[:, None]

    def node(self, dst: Any, aggregate: Any) -> Any:
        return self.update(aggregate)


@pytest.fixture(scope="module", params=["random", "local", "hubs"])
def paged(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return stored_graph(request.param, tmp_path_factory.mktemp("g") / "g")


def predictions(kernel: Any, graph: Any, **fields: Any) -> list[Any]:
    from tiga.frontends.torch.inspection import foretold

    given = [fields.get(name) for name in ("src", "dst", "edge", "ndata")]
    return foretold(kernel, graph, given, {})[1]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kernel", [WeightedSum, Largest, Attention, Layer])
def test_a_run_does_what_was_told(kernel: Any, budget: str, paged: Any) -> None:
    layer = kernel()
    x = torch.from_numpy(paged.field("src", "x").numpy()).requires_grad_()
    w = torch.from_numpy(paged.field("edge", "w").numpy()).requires_grad_()
    call = {"ndata": {"x": x}, "edge": {"w": w}}
    traffic, read = paged.traffic, []
    with tg.execution(memory={"host": budget}) as run:
        told = predictions(layer, paged, **call)
        read.append(traffic.read)
        out = layer(graph=paged, **call)
        read.append(traffic.read)
        out.sum().backward()
        read.append(traffic.read)
        peak = run.memory_report()["peak_bytes"]
    assert len(told) == 2
    for prediction, before, after in zip(told, read, read[1:], strict=False):
        assert prediction.plan.read / 1.5 <= after - before <= 1.5 * prediction.plan.read
    for tier in ("host", "nvme"):
        assert peak[tier] <= max(p.peak[tier] for p in told)


def test_sums_that_a_scan_scatters_are_told_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    graph = tg.Graph.from_coo(*rng.integers(0, 500, (2, 9000)), num_src=500, num_dst=500)
    fields = {"src": {"x": rng.random((500, WIDTH), np.float32)},
              "edge": {"w": rng.random(9000, np.float32)}}  # fmt: skip
    paged, layer = tg.Graph.open(graph.save(tmp_path / "g", fields)), Chain()
    call = {
        name: {n: torch.from_numpy(f.numpy()).requires_grad_() for n, f in found.items()}
        for name, found in (("ndata", paged.fields["src"]), ("edge", paged.fields["edge"]))
    }
    with tg.execution(memory={"host": "2MiB"}) as run:
        told = predictions(layer, paged, **call)
        before = paged.traffic.read
        layer(graph=paged, **call).sum().backward()
        read = paged.traffic.read - before
        peak = run.memory_report()["peak_bytes"]["host"]
    planned = sum(p.plan.read for p in told)
    assert planned / 1.5 <= read <= 1.5 * planned
    assert peak <= max(p.peak["host"] for p in told)


def test_a_forward_run_without_gradients(paged: Any) -> None:
    layer, traffic = WeightedSum(), paged.traffic
    with tg.execution(memory={"host": "3MiB"}) as run:
        text = layer.explain(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
        (told,) = predictions(layer, paged, **paged.fields)
        before = traffic.read
        layer(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
        assert told.plan.read / 1.5 <= traffic.read - before <= 1.5 * told.plan.read
        assert run.memory_report()["peak_bytes"]["host"] <= told.peak["host"]
    assert "it would take" in text
    assert "of 'host'" in text
    assert "gradients" not in text


def test_no_feature_is_read_for_it(tmp_path: Path) -> None:
    graph = tg.Graph.from_coo([0, 1, 1], [1, 0, 1])
    path = graph.save(tmp_path / "g", {"src": {"x": np.ones((2, 4), np.float32)}})
    paged = tg.Graph.open(path)
    entry = paged._container.entry("fields.src.x")
    with path.open("r+b") as file:  # what would be seen if it were looked at
        os.pwrite(file.fileno(), b"\xff" * entry.nbytes, entry.offset)

    class Copy(tg.MessagePassing):
        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return src.x

    before = paged.traffic.read
    text = Copy().explain(graph=paged, src=paged.fields["src"])
    topology = 3 * 8 + 3 * 4
    assert paged.traffic.read - before <= topology
    assert "2 rows" not in text
    assert "reads" in text


def test_a_call_that_would_not_fit_says_so(paged: Any) -> None:
    fields = {"src": paged.fields["src"], "edge": paged.fields["edge"]}
    with tg.execution(memory={"host": "4KiB"}), pytest.raises(OutOfBudget, match="at least"):
        WeightedSum().explain(graph=paged, **fields)


def test_calls_in_memory_and_what_does_not_fuse() -> None:
    graph, x = tg.Graph.from_coo([0, 1], [1, 1]), torch.ones(2, 4)

    class Expensive(tg.MessagePassing):
        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return torch.linalg.matrix_exp(src.x.reshape(-1, 2, 2)).flatten(1)

    layer = Largest()
    assert "1 kernel" in layer.explain(graph=graph, ndata={"x": x})
    assert layer.cache_info.variants == 1
    text = layer.explain(graph=graph, ndata={"x": x.clone().requires_grad_()})
    assert "saving for gradients" in text
    assert "would not be fused" in Expensive().explain(graph=graph, ndata={"x": x})
    strict = Expensive()
    strict.strict = True
    with pytest.raises(Unfusable):
        strict.explain(graph=graph, ndata={"x": x})
