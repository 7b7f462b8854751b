"""Layers, edge networks and gradients on one GPU, and what a call costs on the host.

    python -m benchmarks.gpu_layers [--only part,part] [--layers name,name] [--eager] [--profile]

Results and gradients are compared with the peer's, or between the CPU and the GPU, before anything
is timed; every case runs several times and must leave the same bits. Times are medians of device
events, forward and backward together; beside those of layers are extra peak memory and what the
host takes to launch one. `--layers` picks layers, `--eager` compares them with PyG without
torch.compile, `--profile` adds the longest kernels of each case, `--out DIR` writes the rows there.
"""

import argparse
import json
import math
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import tiga as tg
import tiga.interop.pyg
from benchmarks.gpu import HEAD, TOLERANCE, Choice, Row, Step, extra_peak, median, replayed
from benchmarks.gpu_cases import GRAPHS, Edges, edges_of, uniform, weighted_sum

REPEATS = 4
LAYER_NODES, LAYER_EDGES, WIDTH = 200_000, 4_000_000, 64

Call = Callable[[], list[torch.Tensor]]


def compared(case: str, name: str, ours: Call, peer: Call, limit: float, note: str = "") -> Row:
    """A row for two calls that give results and gradients, in one order."""
    found, expected = ours(), peer()
    wrong = largest_error(found, expected)
    if not all(same_bits(found, ours()) for _ in range(REPEATS)):
        note += " NOT REPEATABLE"
    del found, expected
    peaks = extra_peak(ours), extra_peak(peer)
    note += f" launched in {host_time(ours, 20) / 1e3:.2f} ms"
    time_ours = median(ours, 40) if wrong < limit else math.nan
    if options().profile:
        print(f"{case}:", *kernel_times(ours), sep="\n  ")
    return Row(case, name, median(peer, 40), time_ours, time_ours, wrong, note.strip(), *peaks)


def kernel_times(call: Call, calls: int = 3) -> list[str]:
    """The kernels of a call that take longest, with their time in all and how often they run."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    spent = [(e.self_device_time_total / calls / 1e3, e.count // calls, e.key)
             for e in found.key_averages()]  # fmt: skip
    return [f"{ms:7.3f} ms, {count} x {key[:80]}" for ms, count, key in sorted(spent)[:-13:-1]]


def largest_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest error of some tensors. Gradients that are zero but for rounding, as of a bias
    that a softmax cancels, count by the size of the others; infinities must be in one place."""
    wrong, scale = 0.0, max(float(b[b.isfinite()].double().norm()) for b in expected)
    for a, b in zip(found, expected, strict=True):
        finite = b.isfinite()
        if not torch.equal(finite, a.isfinite()):
            return math.inf
        norm = float(b[finite].double().norm())
        off = float((a[finite].double() - b[finite].double()).norm())
        wrong = max(wrong, off / max(norm, 1e-4 * scale, 1e-30))
    return wrong


def same_bits(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# gradients of weighted sums


def gradient_rows() -> Iterator[Row]:
    """Both gradients of a weighted sum: the transposed product, and products at the edges."""
    for name, build in GRAPHS.items():
        edges = build()
        for width in (1, 16, 64, 256):
            yield _gradient_row(name, edges, width)


def _gradient_row(name: str, edges: Edges, width: int) -> Row:
    nodes, weights = edges.nodes, torch.randn(len(edges.col_idx), device="cuda")
    shape = (nodes, width) if width > 1 else (nodes,)
    fields = [torch.randn(shape, device="cuda") for _ in range(2)]
    step = Step.of(weighted_sum(width), edges.graph(), [fields[0], weights], [fields[1]], Choice())
    step()
    rows, columns = edges.row_ptr.int(), edges.col_idx.int()
    order = torch.argsort(edges.col_idx, stable=True)
    starts = torch.zeros(nodes + 1, dtype=torch.int32, device="cuda")
    starts[1:] = torch.bincount(edges.col_idx, minlength=nodes).cumsum(0)
    turned = torch.sparse_csr_tensor(
        starts, edges.dst[order].int(), weights[order].contiguous(), (nodes, nodes)
    )
    zeros = torch.zeros_like(weights)
    pattern = torch.sparse_csr_tensor(rows, columns, zeros, (nodes, nodes))
    x, cotangent = (field.view(nodes, width) for field in fields)
    columns_first = x.T.contiguous()

    def peer() -> list[torch.Tensor]:
        to_w = torch.sparse.sampled_addmm(pattern, cotangent, columns_first, beta=0.0)
        return [(turned @ cotangent).view(shape), to_w.values()]

    def ours() -> list[torch.Tensor]:
        return step.backward()

    wrong = largest_error(ours(), peer())
    first = [t.clone() for t in ours()]
    note = "" if all(same_bits(first, ours()) for _ in range(REPEATS)) else "NOT REPEATABLE"
    time_ours = replayed(ours) if wrong < TOLERANCE else math.nan
    case = f"gradients of weighted sum {name} F={width}"
    return Row(case, "cuSPARSE", median(peer, 20), time_ours, median(ours), wrong, note)


# layers


def linear_rows() -> Iterator[Row]:
    """A Linear in the edge function, N=200k, E=10M, F=64, against torch.compile."""
    edges = uniform()

    class Network(tg.MessagePassing, torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.linear, self.inner = torch.nn.Linear(WIDTH, WIDTH), inner

        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return torch.relu(self.linear(self.inner(src.x - dst.x)))

    graph, src, dst = edges.graph(), edges.col_idx, edges.dst
    x = torch.randn(edges.nodes, WIDTH, device="cuda", requires_grad=True)
    cotangent = torch.randn_like(x)
    for name, inner in (
        ("Linear of a difference", torch.nn.Identity()),
        ("Linear of a relu", torch.nn.ReLU()),
    ):
        kernel = Network(inner).cuda()
        leaves = [x, *kernel.parameters()]

        def function(x: Any, src: Any, dst: Any, kernel: Any = kernel) -> Any:
            message = torch.relu(kernel.linear(kernel.inner(x[src] - x[dst])))
            return torch.zeros_like(x).index_add(0, dst, message)

        peer_call = partial(torch.compile(function), x, src, dst)
        ours = partial(step, partial(kernel, graph=graph, ndata={"x": x}), leaves, cotangent)
        peer = partial(step, peer_call, leaves, cotangent)
        yield compared(f"step Linear of a {name}", "torch.compile", ours, peer, 5 * TOLERANCE)


def step(forward: Callable[[], torch.Tensor], leaves: list, cotangent: Any) -> list[torch.Tensor]:
    out = forward()
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent)]


def layers(degrees: torch.Tensor) -> dict[str, Callable[[], torch.nn.Module]]:
    from torch_geometric import nn as pyg

    perceptron = lambda: torch.nn.Sequential(  # noqa: E731
        torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )
    ways = ["mean", "min", "max", "std"]
    scalers = ["identity", "amplification", "attenuation"]
    return {
        "GCN": lambda: pyg.GCNConv(WIDTH, WIDTH),
        "GAT 4x16": lambda: pyg.GATConv(WIDTH, 16, heads=4, add_self_loops=False),
        "GAT 4x16 with loops": lambda: pyg.GATConv(WIDTH, 16, heads=4),
        "GATv2 4x16": lambda: pyg.GATv2Conv(WIDTH, 16, heads=4, add_self_loops=False),
        "TransformerConv 4x16": lambda: pyg.TransformerConv(WIDTH, 16, heads=4),
        "SAGE max": lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max"),
        "SAGE mean": lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="mean"),
        "EdgeConv": lambda: pyg.EdgeConv(perceptron()),
        "PNA": lambda: pyg.PNAConv(WIDTH, WIDTH, ways, scalers, degrees),
    }


def layer_rows() -> Iterator[Row]:
    """PyG layers, N=200k, E=4M, 64 features, against the same layers under torch.compile.

    Beside times are the extra peaks of both, as torch's allocator counts them, and how long the
    first step takes: to trace and compile everything, forward and backward.
    """
    edges = uniform(LAYER_NODES, LAYER_EDGES)
    edge_index = torch.stack([edges.col_idx, edges.dst])
    degrees = torch.bincount(edges.row_ptr.diff())
    x = torch.randn(LAYER_NODES, WIDTH, device="cuda", requires_grad=True)
    chosen = options().layers
    for name, build in layers(degrees).items():
        if chosen and name not in chosen:
            continue
        try:
            layer = build().cuda()
            fused = tiga.interop.pyg.compile(layer)
            other = layer if options().eager else torch.compile(layer)
            cotangent = torch.randn_like(layer(x, edge_index).detach())
            leaves = [x, *layer.parameters()]
            ours = partial(step, partial(fused, x, edge_index), leaves, cotangent)
            peer = partial(step, partial(other, x, edge_index), leaves, cotangent)
            note = f"first step {first_time(ours):.1f} s,"
            label = "PyG" if options().eager else "PyG compiled"
            yield compared(f"layer {name}", label, ours, peer, 5 * TOLERANCE, note)
        except Exception as failure:  # the next layer is measured all the same
            traceback.print_exc(limit=-6)
            yield Row(f"layer {name}", "PyG compiled", math.nan, math.nan, math.nan, math.nan,
                      f"{type(failure).__name__}: {str(failure)[:200]}")  # fmt: skip
        torch.cuda.empty_cache()


def first_time(call: Callable[[], Any]) -> float:
    """Seconds of a call with the device's work."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


# agreement, rates, calls


def kernels() -> dict[str, tg.MessagePassing]:
    """Kernels with a field `x` at nodes and `w` at edges."""

    class Weighted(tg.MessagePassing):
        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return torch.tanh(src.x - dst.x) * edge.w[:, None]

    class Shares(tg.MessagePassing):
        reducer = tg.softmax()

        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            return self.reducer((src.x * dst.x).sum(-1) + edge.w, src.x)

    made: dict[str, tg.MessagePassing] = {"softmax": Shares()}
    for name in ("sum", "mean", "max", "min", "std", "var", "logsumexp"):
        reducer = getattr(tg, name)()
        made[name] = type(name.title(), (Weighted,), {"reducer": reducer})()
    return made


def agreement_rows() -> Iterator[Row]:
    """The same call and gradients on the CPU and on the GPU."""
    edges = edges_of(torch.randint(0, 900, (600,), device="cuda"))
    fields = torch.randn(600, 33), torch.randn(len(edges.col_idx))
    for name, kernel in kernels().items():
        found = []
        for device in ("cpu", "cuda"):
            x, w = (t.to(device).requires_grad_() for t in fields)
            graph = tg.Graph.from_csr(edges.row_ptr.to(device), edges.col_idx.to(device))
            call = partial(kernel, graph=graph, ndata={"x": x}, edge={"w": w})
            out = call()
            found.append(step(call, [x, w], torch.cos(torch.arange(out.numel()).view(out.shape))
                              .to(device)))  # fmt: skip
        wrong = largest_error([t.cpu() for t in found[1]], found[0])
        yield Row(f"CPU and GPU {name}", "our CPU", math.nan, math.nan, math.nan, wrong)


def rate_rows() -> Iterator[Row]:
    """Bytes that weighted sums ask for per second, beside a copy's."""
    big, other = (torch.empty(2**30, dtype=torch.float32, device="cuda").normal_() for _ in "ab")
    copy_rate = 2 * big.nbytes / median(partial(other.copy_, big)) / 1e9
    del big, other
    yield Row("copy", "", math.nan, math.nan, math.nan, 0.0, f"{copy_rate:.2f} TB/s")
    for name, build in GRAPHS.items():
        edges = build()
        graph, weights = edges.graph(), torch.randn(len(edges.col_idx), device="cuda")
        for width in (1, 16, 64, 256):
            yield _rate_row(name, edges, graph, weights, width, copy_rate)


def _rate_row(
    name: str, edges: Edges, graph: Any, weights: Any, width: int, copy_rate: float
) -> Row:
    from benchmarks.gpu import Bound

    shape = (edges.nodes, width) if width > 1 else (edges.nodes,)
    x = torch.randn(shape, device="cuda")
    ours = Bound.of(weighted_sum(width), graph, [x, weights], Choice())
    spent = replayed(ours)
    count = len(edges.col_idx)
    asked = count * (8 + 4 * width) + 4 * edges.nodes * width + 12 * edges.nodes
    limit = replayed(partial(torch.index_select, x, 0, edges.col_idx.int()))
    gathered = count * (4 + 4 * width)
    note = (
        f"{asked / spent / 1e9:.2f} TB/s asked for, {asked / spent / 1e9 / copy_rate:.2f} of a "
        f"copy; gather alone {gathered / limit / 1e9:.2f} TB/s read"
    )
    return Row(f"rate weighted sum {name} F={width}", "", math.nan, spent, spent, 0.0, note)


def call_rows() -> Iterator[Row]:
    """Microseconds on the host of warm calls on a small graph."""
    graph = edges_of(torch.full((64,), 4, device="cuda")).graph()
    x, w = torch.randn(64, 16, device="cuda"), torch.randn(256, device="cuda")
    found = kernels()
    fields: dict[str, Any] = {"graph": graph, "ndata": {"x": x}, "edge": {"w": w}}
    for name in ("sum", "max", "softmax"):
        with torch.no_grad():
            spent = host_time(partial(found[name], **fields))
        note = f"{spent:.1f} us"
        if hasattr(found[name], "prepare"):
            note += f", prepared {host_time(found[name].prepare(**fields)):.1f} us"
        yield Row(f"warm call {name}", "", math.nan, math.nan, math.nan, 0.0, note)
    spent = host_time(partial(torch.empty, (64, 16), device="cuda"))
    added = host_time(partial(torch.add, x, x))
    note = f"torch.empty {spent:.1f} us, torch.add {added:.1f} us"
    yield Row("torch's own ops", "", math.nan, math.nan, math.nan, 0.0, note)


def host_time(call: Callable[[], Any], calls: int = 500) -> float:
    """Microseconds of a call on the host: the best of several rounds, none of which fills the
    queue of launches."""
    best = math.inf
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best


PARTS = {
    "call": call_rows,
    "agreement": agreement_rows,
    "linear": linear_rows,
    "gradient": gradient_rows,
    "layer": layer_rows,
    "rate": rate_rows,
}


@cache
def options() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--layers", type=lambda names: names.split(","), default=[])
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    args = options()
    torch.manual_seed(0)
    found: list[Row] = []
    for part in args.only.split(","):
        start = time.perf_counter()
        try:
            for row in PARTS[part]():
                found.append(row)
                print(row, flush=True)
        except Exception:  # the other parts are measured all the same
            traceback.print_exc(limit=-8)
        print(f"-- {part}: {time.perf_counter() - start:.0f} s", flush=True)
        torch.cuda.empty_cache()
    print("\n" + HEAD, *found, sep="\n")
    if args.out:
        lines = "\n".join(json.dumps(vars(r)) for r in found)
        (args.out / "gpu_layers.jsonl").write_text(lines + "\n")


if __name__ == "__main__":
    main()
