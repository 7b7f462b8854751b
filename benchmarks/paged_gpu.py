"""Graphs in files on a GPU: `w * src.x` forward and both gradients, against the GPU's memory.

usage: python -m benchmarks.paged_gpu [--nodes 2e6] [--sources local random] [--only 192MiB]
           [--kernel sorted]

Makes the files once in --folder, as `benchmarks.paged` does; they are read from the page cache. The
bits are compared with those of the graph in memory. `read_mib` is of each call, one after another.
`native` does the same with native tensors, whose memory is the driver's. The kernel `sorted` is one
that no walk holds: blocks of destinations run through torch, and smaller ones than in memory may
add in another order (`off` is the largest difference, relative to the largest value).
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiga as tg
from benchmarks.paged import FOLDER, KERNELS, fields_of, forward, graph_file

REPEATS = 5

CALLS = 6
"""Steps over a graph in a file, one after another: the first reads it, later ones find what was
kept."""

PINNED = {"host-pinned": "256MiB"}
SETTINGS: dict[str, dict[str, str]] = {
    "no budget": PINNED,
    "512MiB": PINNED | {"device": "512MiB"},
    "192MiB": PINNED | {"device": "192MiB"},
    "192MiB, results in files": PINNED | {"device": "192MiB", "host": "1MiB"},
    "192MiB, 512MiB pinned": {"host-pinned": "512MiB", "device": "192MiB"},
    "192MiB, 1GiB pinned": {"host-pinned": "1GiB", "device": "192MiB"},
    "192MiB, 3GiB of the host": PINNED | {"device": "192MiB", "host": "3GiB"},
}
"""What memory pages, inputs and results may take."""

ON_DEVICE = "fields on the device"


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


def measured(path: Path, wanted: list[str], kernel: str) -> Iterator[dict[str, Any]]:
    """One record for the graph in memory, then one for each setting with fields in the file, one
    with fields on the device, so that edges alone are read, and some of native tensors."""
    device, layer = torch.device("cuda", 0), KERNELS[kernel]()
    opened = tg.Graph.open(path, device="cuda")
    times, expected = _whole(layer, opened, device)
    yield {"case": "in memory", "ms": round(statistics.median(times), 2)}
    torch.cuda.empty_cache()
    for name in (n for n in SETTINGS if any(part in n for part in wanted)):
        yield {"case": name} | _paged(layer, opened, SETTINGS[name], fields_of(opened), expected)
    if any(part in ON_DEVICE for part in wanted):
        held = [f.detach().to(device).requires_grad_() for f in fields_of(opened)]
        yield {"case": ON_DEVICE} | _paged(layer, opened, PINNED, held, expected)
        del held
        torch.cuda.empty_cache()
    for name in ("no budget", "192MiB") if kernel == "weighted" else ():
        if any(part in f"native, {name}" for part in wanted):
            yield {"case": f"native, {name}"} | _native(opened, SETTINGS[name], expected)


def _whole(layer: Any, opened: Any, device: torch.device) -> tuple[list[float], Any]:
    held = in_memory(opened, device)
    times, found = timed(lambda: both(layer, *held))
    return times, [tensor.cpu() for tensor in found]


def _paged(
    layer: Any, opened: Any, memory: dict[str, str], given: Any, expected: Any
) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = _timed(opened, memory, lambda: both(layer, opened, *given), expected)
    peak = torch.cuda.max_memory_allocated() - before
    return found | {"torch_peak_mib": round(peak / 2**20, 1)}


class WeightedNative(tg.MessagePassing):
    """The same on native tensors."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w.reshape(-1, 1) * src.x


def _native(opened: Any, memory: dict[str, str], expected: Any) -> dict[str, Any]:
    layer, named = WeightedNative(), (opened.field("src", "x"), opened.field("edge", "w"))
    x, w = (tg.from_numpy(field.numpy()).requires_grad_() for field in named)

    def run() -> Any:
        out = layer(graph=opened, src={"x": x}, edge={"w": w})
        return (out.detach(), *tg.autograd.grad(out, [x, w], grad_output=tg.ones(out.shape)))

    return _timed(opened, memory, run, expected)


def _timed(
    opened: Any, memory: dict[str, str], run: Callable[[], Any], expected: Any
) -> dict[str, Any]:
    reads = [opened.traffic.read]

    def call() -> Any:
        result = run()
        reads.append(opened.traffic.read)
        return result

    with tg.execution(memory=memory) as scope:
        times, found = timed(call, CALLS)
        on_host = [torch.from_numpy(np.asarray(t.cpu().numpy())) for t in map(_plain, found)]
        same, off = alike(on_host, expected), _off(on_host, expected)
        report = scope.memory_report()
    return {
        "ms": round(min(times), 1),
        "first_ms": round(times[0], 1),
        "second_ms": round(times[1], 1),
        "same_bits": same,
        "off": off,
        "read_mib": [round((b - a) / 2**20) for a, b in pairwise(reads)],
        "peak_mib": _mib(report["peak_bytes"]),
        "kept_mib": _mib(report["idle_bytes"]),
    }


def _off(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def _mib(nbytes: dict[str, int]) -> dict[str, float]:
    return {tier: round(n / 2**20, 1) for tier, n in nbytes.items() if n}


def _plain(tensor: Any) -> Any:
    return tensor.detach()


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=float, default=2e6)
    parser.add_argument("--sources", nargs="+", default=["local", "random"])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of settings")
    parser.add_argument("--kernel", default="weighted", choices=KERNELS)
    parser.add_argument("--folder", default=FOLDER)
    given = parser.parse_args()
    for sources in given.sources:
        path = graph_file(given.folder, int(given.nodes), sources)
        for record in measured(path, given.only, given.kernel):
            print(json.dumps({"sources": sources, **record}), flush=True)


if __name__ == "__main__":
    main()
