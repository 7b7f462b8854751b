"""Graphs in files, whatever the graph and the budget: the bits of the graph in memory, or a refusal
that has the figures."""

import re
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiga as tg
from tests.strategies import graphs
from tiga.errors import OutOfBudget

torch = pytest.importorskip("torch")
WIDTH = 2


class Bent(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.relu(src.x - dst.x) * edge.w[:, None]


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer((src.x * dst.x).sum(-1) * edge.w, src.x)


class Ends(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.x * edge.w[:, None]), tg.max()(src.x * dst.x)


KERNELS = (Bent(), Attention(), Ends())


def results(kernel: Any, graph: Any, fields: list[Any]) -> list[Any]:
    """What a call gives, and its gradients."""
    x, y, w = fields
    out = kernel(graph=graph, src={"x": x}, dst={"x": y}, edge={"w": w})
    outs = list(out) if isinstance(out, tuple) else [out]
    loss = sum((o * torch.linspace(-1, 1, o.numel()).view(o.shape)).sum() for o in outs)
    return [*(o.detach() for o in outs), *torch.autograd.grad(loss, fields)]


def found_or_refused(call: Callable[[], list[Any]]) -> list[Any] | None:
    """What a call gives; None if it is refused, with figures."""
    try:
        return call()
    except OutOfBudget as error:
        refusal = str(error)
    assert re.search(r"\d", refusal)
    return None


def check(kernel: Any, coo: Any, budget: int, depth: int, in_file: list[bool], seed: int) -> None:
    src, dst, num_src, num_dst = coo
    order = np.argsort(dst, kind="stable")
    memory = tg.Graph.from_coo(src[order], dst[order], num_src=num_src, num_dst=num_dst)
    generator = torch.Generator().manual_seed(seed)
    shapes = (num_src, WIDTH), (num_dst, WIDTH), (len(src),)
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    expected = results(kernel, memory, [v.clone().requires_grad_() for v in values])
    spaces = ("src", "x"), ("dst", "x"), ("edge", "w")
    with tempfile.TemporaryDirectory() as folder:
        stored = {space: {name: v} for (space, name), v in zip(spaces, values, strict=True)}
        paged = tg.Graph.open(memory.save(folder + "/g", stored))
        mapped = [torch.from_numpy(paged.field(*place).numpy()) for place in spaces]
        pairs = zip(values, mapped, in_file, strict=True)
        fields = [(m if f else v.clone()).requires_grad_() for v, m, f in pairs]
        scope = tg.execution(memory={"host": budget}, prefetch_depth=depth, spill_dir=folder)
        with scope as run:
            found = found_or_refused(lambda: results(kernel, paged, fields))
        if found is None:
            return
        assert run.memory_report()["peak_bytes"]["host"] <= budget
        assert all(map(torch.equal, found, expected))


def drawn(max_nodes: int, max_edges: int, examples: int) -> Any:
    def decorate(test: Any) -> Any:
        calm = settings(max_examples=examples, deadline=None,
                        suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
        return calm(
            given(
                kernel=st.sampled_from(KERNELS),
                coo=graphs(max_nodes, max_edges),
                budget=st.sampled_from([2**i * 3 for i in range(10, 19)]),
                depth=st.integers(0, 3),
                in_file=st.lists(st.booleans(), min_size=3, max_size=3),
                seed=st.integers(0, 2**31),
            )(test)
        )

    return decorate


@drawn(40, 300, 40)
def test_small_graphs(**given: Any) -> None:
    check(**given)


@pytest.mark.slow
@drawn(2000, 14_000, 300)
def test_graphs_with_hubs(**given: Any) -> None:
    check(**given)


@pytest.mark.parametrize("budget", range(48 * 1024, 200 * 1024, 12 * 1024))
def test_rows_around_a_hub_with_fields_in_memory(budget: int) -> None:
    """The rows of a hub's task are staged side by side without it, what is in memory too."""
    rng = np.random.default_rng(0)
    dst = np.concatenate((np.full(5000, 300), rng.integers(0, 1000, 8000)))
    coo = rng.integers(0, 1200, len(dst)), dst, 1200, 1000
    check(KERNELS[0], coo, budget, 1, [True, False, False], 3)
