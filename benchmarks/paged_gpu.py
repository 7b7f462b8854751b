"""Graphs in files on a GPU: `w * src.x` forward and both gradients, against the GPU's memory.

usage: python -m benchmarks.paged_gpu [--nodes 2e6] [--budgets none 512MiB 192MiB]

Makes the files once in --folder, as `benchmarks.paged` does; they are read from the page cache. The
bits are compared with those of the graph in memory. Rates are those of the bytes that pages take.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiga as tg
from benchmarks.paged import FOLDER, Weighted, fields_of, forward, graph_file

REPEATS = 5


def timed(run: Callable[[], Any], repeats: int = REPEATS) -> tuple[list[float], Any]:
    """Milliseconds of each repeat, and the last result."""
    found, result = [], None
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        found.append(1000 * (time.perf_counter() - start))
    return found, result


def both(layer: Any, graph: Any, x: Any, w: Any) -> Any:
    """The sums, and the gradients of both fields when every sum counts once."""
    out = forward(layer, graph, x, w)
    seed = torch.ones(1, 1, device=out.device).expand(out.shape)
    return (out.detach(), *torch.autograd.grad(out, (x, w), seed))


def in_memory(opened: Any, device: torch.device) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The graph and its fields in the GPU's memory."""
    csr = opened.in_memory().csr()
    arrays = [torch.from_numpy(np.array(a)).to(device) for a in (csr.row_ptr, csr.col_idx)]
    graph = tg.Graph.from_csr(*arrays, num_src=opened.num_src)
    x, w = (f.detach().to(device).requires_grad_() for f in fields_of(opened))
    return graph, x, w


def alike(found: Any, expected: Any) -> bool:
    """Whether all results have the same bits."""
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(found, expected, strict=True))


def measured(path: Path, budgets: list[str]) -> Iterator[dict[str, Any]]:
    """One record for the graph in memory, then two per device budget: fields in the file, and
    (where they fit) fields on the device, so that edges alone are read."""
    device, layer = torch.device("cuda", 0), Weighted()
    opened = tg.Graph.open(path, device="cuda")
    times, expected = _whole(layer, opened, device)
    yield {"case": "in memory", "ms": round(statistics.median(times), 2)}
    torch.cuda.empty_cache()
    for budget in budgets:
        yield _paged(layer, opened, budget, fields_of(opened), expected)
    held = [f.detach().to(device).requires_grad_() for f in fields_of(opened)]
    yield _paged(layer, opened, "none", held, expected) | {"case": "fields on the device"}


def _whole(layer: Any, opened: Any, device: torch.device) -> tuple[list[float], Any]:
    held = in_memory(opened, device)
    times, found = timed(lambda: both(layer, *held))
    return times, [tensor.cpu() for tensor in found]


def _paged(layer: Any, opened: Any, budget: str, given: Any, expected: Any) -> dict[str, Any]:
    memory = {"host-pinned": "256MiB"} | ({} if budget == "none" else {"device": budget})
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), opened.traffic.read
    with tg.execution(memory=memory) as run:
        times, found = timed(lambda: both(layer, opened, *given), 3)
        same = alike(found, expected)
        peaks = run.memory_report()["peak_bytes"]
    read = (opened.traffic.read - start) / 3
    return {
        "case": f"device {budget}",
        "ms": round(min(times), 1),
        "first_ms": round(times[0], 1),
        "same_bits": same,
        "read_mib": round(read / 2**20),
        "gb_per_s": round(read / min(times) / 1e6, 2),
        "peak_mib": {tier: round(n / 2**20, 1) for tier, n in peaks.items() if n},
        "torch_peak_mib": round((torch.cuda.max_memory_allocated() - before) / 2**20, 1),
    }


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=float, default=2e6)
    parser.add_argument("--sources", nargs="+", default=["local", "random"])
    parser.add_argument("--budgets", nargs="+", default=["none", "512MiB", "192MiB"])
    parser.add_argument("--folder", default=FOLDER)
    given = parser.parse_args()
    for sources in given.sources:
        path = graph_file(given.folder, int(given.nodes), sources)
        for record in measured(path, given.budgets):
            print(json.dumps({"sources": sources, **record}), flush=True)


if __name__ == "__main__":
    main()
