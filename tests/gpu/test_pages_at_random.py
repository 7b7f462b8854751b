"""Graphs in files on a GPU, whatever the graph and the budget: the bits of the graph in its memory,
within the budget, or a refusal that has the figures."""

import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiga as tg
from tests.gpu import harness
from tests.gpu.paged_harness import same_bits
from tests.properties.test_paged_graphs import KERNELS, WIDTH, found_or_refused
from tests.strategies import graphs

pytestmark = pytest.mark.usefixtures("where")
CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def results(kernel: Any, graph: Any, fields: list[Any]) -> list[Any]:
    """What a call gives, and its gradients."""
    x, y, w = fields
    out = kernel(graph=graph, src={"x": x}, dst={"x": y}, edge={"w": w})
    outs = list(out) if isinstance(out, tuple) else [out]
    weights = [torch.linspace(-1, 1, o.numel()).view(o.shape).to(o.device) for o in outs]
    loss = sum((o * weight).sum().cpu() for o, weight in zip(outs, weights, strict=True))
    return [*(o.detach() for o in outs), *torch.autograd.grad(loss, fields)]


def check(
    kernel: Any, coo: Any, device: int, pinned: int, depth: int | None, in_file: list[bool],
    seed: int,
) -> None:  # fmt: skip
    src, dst, num_src, num_dst = coo
    where, order = harness.device(), np.argsort(dst, kind="stable")
    assert where is not None
    memory = tg.Graph.from_coo(src[order], dst[order], num_src=num_src, num_dst=num_dst)
    generator = torch.Generator().manual_seed(seed)
    shapes = (num_src, WIDTH), (num_dst, WIDTH), (len(src),)
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    csr = memory.csr()
    arrays = (torch.from_numpy(np.array(a)).to(where) for a in (csr.row_ptr, csr.col_idx))
    there = tg.Graph.from_csr(*arrays, num_src=num_src)
    expected = results(kernel, there, [v.to(where, copy=True).requires_grad_() for v in values])
    spaces = ("src", "x"), ("dst", "x"), ("edge", "w")
    with tempfile.TemporaryDirectory() as folder:
        stored = {space: {name: v} for (space, name), v in zip(spaces, values, strict=True)}
        paged = tg.Graph.open(memory.save(folder + "/g", stored), device=str(where))
        mapped = [torch.from_numpy(paged.field(*place).numpy()) for place in spaces]
        pairs = zip(values, mapped, in_file, strict=True)
        fields = [(m if f else v.to(where, copy=True)).requires_grad_() for v, m, f in pairs]
        budgets = {"device": device, "host-pinned": pinned}
        scope = tg.execution(memory=budgets, prefetch_depth=depth, spill_dir=folder)
        with scope as run:
            found = found_or_refused(lambda: results(kernel, paged, fields))
        if found is None:
            return
        peaks = run.memory_report()["peak_bytes"]
        assert all(peaks[tier] <= most for tier, most in budgets.items())
        assert same_bits(found, expected)


def drawn(max_nodes: int, max_edges: int, examples: int) -> Any:
    def decorate(test: Any) -> Any:
        calm = settings(max_examples=examples, deadline=None, suppress_health_check=CALM)
        sizes = st.sampled_from([2**i * 3 for i in range(10, 18)])
        return calm(
            given(
                kernel=st.sampled_from(KERNELS),
                coo=graphs(max_nodes, max_edges),
                device=sizes,
                pinned=sizes,
                depth=st.sampled_from([None, 0, 1, 3]),
                in_file=st.lists(st.booleans(), min_size=3, max_size=3),
                seed=st.integers(0, 2**31),
            )(test)
        )

    return decorate


@drawn(40, 300, 8)
def test_small_graphs(**given: Any) -> None:
    check(**given)


@pytest.mark.slow
@drawn(300, 2000, 60)
def test_graphs_with_hubs(**given: Any) -> None:
    check(**given)
