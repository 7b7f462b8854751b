"""Graphs in files: `w * src.x` forward and both gradients, against the budget and the disk.

usage: python -m benchmarks.paged [--nodes 25e6] [--sources local] [--budget 2GiB] [--cold]
           [--kernel sorted]

Sources lie near their rows (`local`) or anywhere: `random` ones are in order within rows, as
`sort_sources` writes them, `unordered` ones as they were drawn.

Makes the file once (25e6 nodes: 6.3 GiB, some minutes) in --folder, where later runs find it;
remove the folder afterwards. The program is run on a small graph first, so that everything is
compiled; peak memory is what the process holds beyond that, without pages of files.

Each of `--steps` goes forward and backward, and drops its results at its end. The first asks the
system for all of its memory and files; the next ones use these again, as training does.

The disk's rates are those of reading the file's beginning, and of writing a file, in order and
past the page cache, with requests of 4 MiB from huge pages, 1 and 4 at a time: the better counts.
The first time that a file is written is told apart. `read_share` is the rate of reading over both
passes against the disk's; `disk_share` counts the time that the disk takes for what is written
too, to new files in the first step; `cpu_share` is the processor time against that of all cores.
"""

import argparse
import json
import mmap
import os
import re
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiga as tg
from tiga.runtime.tiers import parse_size

DEGREE, WIDTH, REACH = 8, 32, 200
CHUNK = 2_000_000
FOLDER = "/var/tmp/tiga-paged"


class Weighted(tg.MessagePassing):
    """The weighted sum of the sources' features."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w[:, None] * src.x


class Sorted(tg.MessagePassing):
    """The sum of the sources' sorted features, which no walk holds: it runs through torch."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sort(edge.w[:, None] * src.x, dim=-1).values


KERNELS = {"weighted": Weighted, "sorted": Sorted}


def chunks(nodes: int, sources: str) -> Iterator[Any]:
    """Edges in order of destination; sources near it, or drawn from all nodes."""
    edges = nodes * DEGREE
    for start in range(0, edges, CHUNK):
        rng, count = np.random.default_rng(start), min(CHUNK, edges - start)
        dst = np.arange(start, start + count) // DEGREE
        if sources == "local":
            src = np.clip(dst + rng.integers(-REACH, REACH, count), 0, nodes - 1)
        else:
            src = rng.integers(0, nodes, count)
        yield src, dst, {"w": rng.random(count, np.float32)}


def graph_file(folder: str, nodes: int, sources: str) -> Path:
    """The graph's file, made if it is not there."""
    path = Path(folder) / f"{sources}-{nodes}.tiga"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".x")
    x = np.memmap(scratch, np.float32, "w+", shape=(nodes, WIDTH))
    rng = np.random.default_rng(1)
    for start in range(0, nodes, CHUNK // 4):
        part = x[start : start + CHUNK // 4]
        part[:] = rng.random(part.shape, np.float32)
    tg.Graph.write_csr(
        path, chunks(nodes, sources), num_nodes=nodes, fields={"src": {"x": x}}, memory="512MiB",
        sort_sources=sources == "random",
    )  # fmt: skip
    scratch.unlink()
    return path


def drop_cached(path: Path) -> None:
    """Let the page cache forget a file."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


REQUEST = 2**22


def disk_rates(path: Path, write: bool = False, most: int = 2**31) -> tuple[float, float]:
    """Bytes per second of reading, or writing, a file's beginning in order, past the page cache: at
    first, and at best."""
    flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
    fd = os.open(path, flags | os.O_DIRECT)
    if write:
        os.posix_fallocate(fd, 0, most)
    try:
        most = min(most, os.fstat(fd).st_size) // REQUEST * REQUEST
        found = [_rate(fd, write, most, depth) for depth in (1, 4) for _ in range(2)]
        return found[0], max(found)
    finally:
        os.close(fd)


def _rate(fd: int, write: bool, most: int, depth: int) -> float:
    """The rate with so many requests under way."""
    move = os.pwritev if write else os.preadv
    memory = mmap.mmap(-1, (depth + 1) * REQUEST, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    whole[::4096] = 1
    start = -whole.ctypes.data % 2**21

    def stream(lane: int) -> None:
        block = whole[start + lane * REQUEST : start + (lane + 1) * REQUEST]
        for offset in range(lane * REQUEST, most, depth * REQUEST):
            move(fd, [block.data], offset)

    begin = time.perf_counter()
    lanes = [threading.Thread(target=stream, args=(lane,)) for lane in range(depth)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    return most / (time.perf_counter() - begin)


class Watch:
    """The most anonymous and shared memory of the process while the body of a `with` runs, over
    what it was before."""

    def __enter__(self) -> "Watch":
        self.before, self.most, self._over = _held(), 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, _held() - self.before)

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()


def _held() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) * 1024


def fields_of(graph: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The fields as tensors mapped from the file."""
    named = (graph.field("src", "x"), graph.field("edge", "w"))
    x, w = (torch.from_numpy(f.numpy()).requires_grad_() for f in named)
    return x, w


def forward(layer: Any, graph: Any, x: Any, w: Any) -> torch.Tensor:
    out: torch.Tensor = layer(graph=graph, src={"x": x}, edge={"w": w})
    return out


def both(layer: Any, graph: Any, x: Any, w: Any, seed: torch.Tensor) -> Any:
    """Forward and the gradients of both fields."""
    return torch.autograd.grad(forward(layer, graph, x, w), (x, w), seed)


def measured(
    path: Path, folder: str, budget: str, cold: bool, steps: int, kernel: str
) -> dict[str, Any]:
    """Seconds and bytes of each step, a forward and a backward within a budget, and the most that
    they hold."""
    layer = KERNELS[kernel]()
    _warm_up(layer, folder)
    graph = tg.Graph.open(path)
    with Watch() as watch, tg.execution(memory={"host": budget}, spill_dir=folder) as run:
        found = [_step(layer, graph, path, cold) for _ in range(steps)]
    plans = [line for line in layer.explain().splitlines() if "in a file" in line]
    return {
        "steps": found,
        "planned": [_told(line, "reads") for line in plans],
        "peak": watch.most,
        "budget": parse_size(budget),
        "charged": run.memory_report()["peak_bytes"]["host"],
        "plans": plans,
    }


def _step(layer: Any, graph: Any, path: Path, cold: bool) -> dict[str, Any]:
    """One forward and backward, whose results live until it ends."""
    x, w = fields_of(graph)
    if cold:
        drop_cached(path)
    seed = torch.ones(1, 1).expand(graph.num_dst, WIDTH)
    traffic = [(graph.traffic.read, graph.traffic.written)]
    start, before = time.perf_counter(), os.times()
    out = forward(layer, graph, x, w)
    middle = time.perf_counter()
    traffic.append((graph.traffic.read, graph.traffic.written))
    gradients = torch.autograd.grad(out, (x, w), seed)
    end, after = time.perf_counter(), os.times()
    traffic.append((graph.traffic.read, graph.traffic.written))
    del out, gradients
    return {
        "forward_seconds": middle - start,
        "backward_seconds": end - middle,
        "user_seconds": after.user - before.user,
        "system_seconds": after.system - before.system,
        "read": [high[0] - low[0] for low, high in pairwise(traffic)],
        "written": traffic[-1][1] - traffic[0][1],
    }


def shares(step: dict[str, Any], rates: tuple[float, float]) -> dict[str, float]:
    """What a step makes of the disk and of the cores, given the disk's rates."""
    seconds = step["forward_seconds"] + step["backward_seconds"]
    read, written = sum(step["read"]), step["written"]
    busy = step["user_seconds"] + step["system_seconds"]
    return {
        "read_share": read / seconds / rates[0],
        "disk_share": (read / rates[0] + written / rates[1]) / seconds,
        "cpu_share": busy / seconds / (os.cpu_count() or 1),
    }


def _told(plan: str, what: str) -> int:
    """The bytes that a plan tells of, as exactly as it does."""
    number, unit = re.findall(rf"{what} ([0-9.]+) (\w+)", plan)[0]
    return round(float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit))


def _warm_up(layer: Any, folder: str) -> None:
    graph = tg.Graph.open(graph_file(folder, 4000, "local"))
    x, w = fields_of(graph)
    with tg.execution(memory={"host": "64MiB"}, spill_dir=folder):
        both(layer, graph, x, w, torch.ones(1, 1).expand(graph.num_dst, WIDTH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=lambda text: int(float(text)), default=25_000_000)
    parser.add_argument("--sources", choices=("local", "random", "unordered"), default="local")
    parser.add_argument("--budget", default="2GiB")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--kernel", choices=KERNELS, default="weighted")
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--cold", action="store_true", help="nothing of the file in the page cache")
    options = parser.parse_args()
    path = graph_file(options.folder, options.nodes, options.sources)
    found = measured(
        path, options.folder, options.budget, options.cold, options.steps, options.kernel
    )
    drop_cached(path)
    scratch = path.with_suffix(".x")
    (_, reading), (anew, again) = disk_rates(path), disk_rates(scratch, write=True)
    scratch.unlink()
    found |= {"disk_read_rate": reading, "disk_write_rates": {"new": anew, "again": again}}
    found["steps"] = [
        {**step, **shares(step, (reading, again if number else anew))}
        for number, step in enumerate(found["steps"])
    ]
    read = sum(found["steps"][-1]["read"])
    found["read_of_planned"] = read / max(1, sum(found["planned"]))
    found["peak_of_budget"] = found["peak"] / found["budget"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
