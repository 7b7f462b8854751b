"""Graphs of tests in a file, beside the same in the device's memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiga as tg
from tests.gpu import harness

NODES, WIDTH = 80, 4


def degrees(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Some rows without edges, and some that kernels split."""
    if kind == "uneven":
        found = rng.zipf(1.7, NODES).clip(0, 300)
        found[[3, 40]] = 300, 515
    else:
        found = rng.integers(0, 9, NODES)
        found[5] = 9000 if kind == "long" else 400
    found[::7] = 0
    return found


def saved(folder: Path, kind: str) -> tuple[Any, Any]:
    """A graph in the device's memory, and in a file with fields."""
    rng, where = np.random.default_rng(3), harness.device()
    degree = degrees(rng, kind)
    dst = np.repeat(np.arange(NODES), degree)
    src = rng.integers(0, NODES, len(dst))
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    x = rng.integers(-3, 4, (NODES, WIDTH)).astype(np.float32) / 3
    w = rng.standard_normal(len(dst)).astype(np.float32)
    path = graph.save(folder / "g", {"src": {"x": x}, "edge": {"w": w}})
    opened = tg.Graph.open(path, device=str(where))
    csr = opened.in_memory().csr()
    memory = tg.Graph.from_csr(
        *(torch.from_numpy(np.array(a)).to(where) for a in (csr.row_ptr, csr.col_idx)),
        num_src=NODES,
    )
    return memory, opened


def with_damage(opened: Any, path: Path, where: Any) -> Any:
    """A copy of a graph's file, one of whose edges names a node that there is not."""
    data = bytearray(opened.path.read_bytes())
    index = opened.walks["dst"].index
    data[index.offset + 400 : index.offset + 404] = (10**6).to_bytes(4, "little")
    path.write_bytes(data)
    return tg.Graph.open(path, device=str(where))


def fields(opened: Any, where: torch.device, dtype: Any, in_file: bool) -> list[Any]:
    """`x` and `w`: in the device's memory, or mapped from the file."""
    kinds = opened.field("src", "x"), opened.field("edge", "w")
    arrays = [torch.from_numpy(kind.numpy()) for kind in kinds]
    if not in_file:
        arrays = [array.clone().to(where, dtype) for array in arrays]
    return [array.detach().requires_grad_() for array in arrays]


def with_gradients(kernel: Any, graph: Any, given: list[Any]) -> list[Any]:
    x, w = given
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum((o.float() ** 2).sum().cpu() for o in outs)
    return [*(o.detach() for o in outs), *torch.autograd.grad(loss, given)]


def same_bits(found: list[Any], expected: list[Any]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in pairs)


def check(
    run: Callable[[Any, list[Any]], list[Any]], both: Any, where: Any, budget: str | None,
    dtype: Any = torch.float32, in_file: bool = True, **more: str,
) -> dict[str, Any]:  # fmt: skip
    """The same bits within a budget (`more` has those of other tiers); what the scope reports."""
    memory, opened = both
    expected = run(memory, fields(opened, where, dtype, in_file=False))
    budgets = {} if budget is None else {"device": budget, "host-pinned": budget, **more}
    with tg.execution(memory=budgets) as scope:
        found = run(opened, fields(opened, where, dtype, in_file))
        report = scope.memory_report()
    assert same_bits(found, expected)
    return report


def within(report: dict[str, Any]) -> bool:
    peaks, budgets = report["peak_bytes"], report["budget_bytes"]
    return all(most is None or peaks[tier] <= most for tier, most in budgets.items())
