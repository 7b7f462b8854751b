"""Weighted sums and whole training steps on one GPU, beside cuSPARSE and torch.compile.

    python -m benchmarks.gpu [--sweep] [--out DIR]

Correctness comes first: a case whose result differs from the peer's is reported and not timed.
Times are medians of device events; ours also as a replayed CUDA graph, which leaves out the cost
of launching. `--sweep` tries other tiles and prints the best beside the chosen one.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton.testing

from benchmarks.gpu_cases import GRAPHS, NODES, R, edges_of, peers, uniform, weighted_sum
from tiga.backends.triton.choice import choose, edge_tile
from tiga.backends.triton.executable import Executable, compile_program
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.schedule import choose_tile
from tiga.backends.triton.topology import NO_EDGES, Degrees
from tiga.passes.differentiate import RULES
from tiga.passes.rows import RowProgram
from tiga.relations import Graph
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL

TOLERANCE = 1e-3


def median(call: Callable[[], Any], rep: int = 60) -> float:
    """Milliseconds of one call, by device events."""
    return triton.testing.do_bench(call, warmup=15, rep=rep, return_mode="median")


def replayed(call: Callable[[], Any], rep: int = 60) -> float:
    """Milliseconds of one call, captured in a CUDA graph and replayed."""
    call()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    return median(captured.replay, rep)


# running


class Choice:
    """Tiles, with some replaced for a sweep."""

    def __init__(self, change: Callable[[Tile], Tile] | None = None) -> None:
        self.change = change
        self.chosen: list[Tile] = []

    def __call__(self, program: RowProgram, degrees: Degrees) -> Tile:
        tile = choose(program, degrees)
        if degrees == NO_EDGES:
            return tile
        if self.change is not None:
            tile = self.change(choose_tile(program, degrees.typical))
        if tile not in self.chosen:
            self.chosen.append(tile)
        return tile


@dataclass
class Bound:
    """An executable with its tensors."""

    executable: Executable
    graph: Graph
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    @staticmethod
    def of(program: Program, graph: Graph, inputs: list[torch.Tensor], choice: Choice) -> "Bound":
        sizes = {GLOBAL: None, NODES: graph.num_dst, R.edge: graph.num_edges}
        outputs = []
        for node in program.outputs:
            lead = sizes[node.type.space]
            shape = (*(() if lead is None else (lead,)), *node.type.shape)
            dtype = getattr(torch, node.type.dtype.name)
            outputs.append(torch.full(shape, math.nan, dtype=dtype, device="cuda"))
        return Bound(compile_program(program, choice), graph, inputs, outputs)

    def __call__(self) -> list[torch.Tensor]:
        graphs = [self.graph] * len(self.executable.relations)
        self.executable.run(graphs, self.inputs, self.outputs, {NODES: self.graph.num_dst})
        return self.outputs


@dataclass
class Step:
    """A training step: the forward walk that saves what the backward needs, and the backward."""

    forward: Bound
    backward: Bound

    @staticmethod
    def of(
        program: Program, graph: Graph, inputs: list, cotangents: list, choice: Choice
    ) -> "Step":
        wanted = [i for i, n in enumerate(program.inputs) if n.type.dtype.is_float]
        full = training(program, wanted, RULES)
        forward = Bound.of(full, graph, inputs, choice)
        count = len(program.outputs)
        found = gradient(full, wanted, list(range(count)), RULES)
        sources = {"input": inputs, "output": forward.outputs, "cotangent": cotangents}
        arguments = [sources[kind][i] for kind, i in found.arguments]
        return Step(forward, Bound.of(found.program, graph, arguments, choice))

    def __call__(self) -> None:
        self.forward()
        self.backward()


def extra_peak(call: Callable[[], Any]) -> float:
    """MiB that a call needs beyond what is alive before it."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def error(got: torch.Tensor, expected: torch.Tensor) -> float:
    got, expected = got.double(), expected.double()
    return float((got - expected).norm() / expected.norm().clamp(min=1e-30))


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    peer: str
    peer_ms: float
    ours_ms: float
    call_ms: float
    error: float
    note: str = ""
    peak: float = math.nan
    """MiB at most beside what lives before and after a call, as `extra_peak` measures them."""
    peer_peak: float = math.nan

    @property
    def ratio(self) -> float:
        return self.peer_ms / self.ours_ms

    def __str__(self) -> str:
        return (
            f"{self.case:34s} {self.peer:14s} {self.peer_ms:8.4f} {self.ours_ms:8.4f} "
            f"{self.call_ms:8.4f} {self.ratio:6.2f}x {self.error:8.1e} "
            f"{_mebibytes(self.peak)} {_mebibytes(self.peer_peak)}  {self.note}"
        )


def _mebibytes(count: float) -> str:
    return f"{'':8s}" if math.isnan(count) else f"{count:8.0f}"


HEAD = (
    f"{'case':34s} {'peer':14s} {'peer ms':>8s} {'ours':>8s} {'call':>8s}   ratio    error "
    f"{'MiB':>8s} {'peer MiB':>8s}"
)

WARPS = (1, 2, 4)


def _replaced(tile: Tile, _: Tile) -> Tile:
    return tile


def _reshaped(shape: dict[str, Any], tile: Tile) -> Tile:
    return replace(tile, **shape)


def candidates(width: int) -> Iterator[tuple[str, Callable[[Tile], Tile]]]:
    """Tiles worth trying for values of this padded width, by what they are made of."""
    if width == 1:
        for edges, warps in itertools.product((256, 512, 1024, 2048, 4096), (1, 2, 4, 8)):
            if 4 <= edges // (32 * warps) <= 32:
                yield f"edges {edges, warps}", partial(_replaced, edge_tile(edges, warps))
    for warps in WARPS:
        for elements in (8, 16, 32):
            entities = max(1, 32 * warps * elements // width)
            for edges in (8, 16, 32) if width == 1 else (1, 2, 4, 8):
                if 1 <= entities // edges <= 256:
                    shape = {"rows": entities // edges, "edges": edges, "warps": warps}
                    yield f"rows {(*shape.values(),)}", partial(_reshaped, shape)


def sweep(program: Program, graph: Graph, inputs: list, make=Bound.of) -> list:
    """The fastest tiles, best first."""
    width = max(1, min(128, max(n.type.size for n in program.inputs)))
    built = []
    for shape, change in candidates(width):
        built.append((shape, make(program, graph, inputs, Choice(change))))

    def prepare(item: tuple) -> bool:
        try:
            item[1]()
        except Exception as failure:  # a tile that this GPU cannot hold is no candidate
            print("refused", item[0], str(failure)[:80], file=sys.stderr)
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        good = list(pool.map(prepare, built))
    torch.cuda.synchronize()
    times = [
        (replayed(bound, 8), shape)
        for (shape, bound), fine in zip(built, good, strict=True)
        if fine
    ]
    return sorted(times)


def spmm_rows(args: argparse.Namespace) -> Iterator[Row]:
    """Weighted sums against torch.sparse.mm (cuSPARSE, int32 indices)."""
    for name, build in GRAPHS.items():
        edges = build()
        graph, weights = edges.graph(), torch.randn(len(edges.col_idx), device="cuda")
        matrix = torch.sparse_csr_tensor(
            edges.row_ptr.int(), edges.col_idx.int(), weights, (edges.nodes, edges.nodes)
        )
        for width in (1, 16, 64, 256):
            x = torch.randn(edges.nodes, width, device="cuda")
            inputs = [x if width > 1 else x.flatten(), weights]
            choice = Choice()
            ours = Bound.of(weighted_sum(width), graph, inputs, choice)
            expected = matrix @ x
            wrong = error(ours()[0].view_as(expected), expected)
            note = " / ".join(map(str, choice.chosen))
            if args.sweep:
                best = sweep(weighted_sum(width), graph, inputs)[:4]
                note += "; best " + ", ".join(f"{s} {t:.4f}" for t, s in best)
            peer = median(partial(torch.matmul, matrix, x))
            times = (replayed(ours), median(ours)) if wrong < TOLERANCE else (math.nan, math.nan)
            yield Row(f"weighted sum {name} F={width}", "cuSPARSE", peer, *times, wrong, note)


def step_rows(args: argparse.Namespace) -> Iterator[Row]:
    """Forward and backward against torch.compile, N=200k, E=10M, F=64."""
    edges = uniform()
    graph, src, dst = edges.graph(), edges.col_idx, edges.dst
    for name, (program_of, function) in peers().items():
        program = program_of()
        dtype = getattr(torch, program.inputs[0].type.dtype.name)
        x = torch.randn(edges.nodes, 64, device="cuda", dtype=dtype)
        extra = [torch.randn(64, device="cuda")] if name == "attention" else []
        leaves = [t.clone().requires_grad_() for t in (x, *extra)]
        cotangents = [torch.randn_like(x) for _ in program.outputs]
        choice = Choice()
        ours = Step.of(program, graph, [x, *extra], cotangents, choice)
        ours()
        compiled = torch.compile(function)

        def peer(leaves=leaves, compiled=compiled, cotangents=cotangents):
            for leaf in leaves:
                leaf.grad = None
            torch.autograd.backward(compiled(*leaves, src, dst), cotangents)

        peer()
        outputs = function(*[t.detach() for t in leaves], src, dst)
        wrong = max(error(a, b) for a, b in zip(ours.forward.outputs, outputs, strict=False))
        gradients = [leaf.grad for leaf in leaves]
        wrong = max(
            wrong, *(error(a, b) for a, b in zip(ours.backward.outputs, gradients, strict=True))
        )
        limit = 3e-2 if dtype == torch.bfloat16 else TOLERANCE
        first = [t.clone() for t in ours.backward.outputs]
        ours()
        same = all(torch.equal(a, b) for a, b in zip(first, ours.backward.outputs, strict=True))
        note = f"forward {replayed(ours.forward):.3f} backward {replayed(ours.backward):.3f} ms"
        note += "" if same else " NOT REPEATABLE"
        note += f"; scratch {extra_peak(ours):.0f} MiB, peer {extra_peak(peer):.0f} MiB"
        if args.sweep and name in ("relu sum", "attention"):
            for part in ("forward", "backward"):
                bound = getattr(ours, part)
                text = ", ".join(f"{s} {t:.3f}" for t, s in _sweep_bound(bound)[:4])
                note += f"; {part} chosen {choice.chosen} best {text}"
        times = (replayed(ours, 40), median(ours, 40)) if wrong < limit else (math.nan, math.nan)
        yield Row(f"step {name}", "torch.compile", median(peer, 40), *times, wrong, note)


class Difference:
    """relu(x_src - x_dst), summed, as users write it."""

    @staticmethod
    def kernel() -> Any:
        import tiga as tg

        class Sum(tg.MessagePassing):
            reducer = tg.sum()

            def edge(self, src: Any, dst: Any, edge: Any) -> Any:
                return torch.relu(src.x - dst.x)

        return Sum()


def public_rows(args: argparse.Namespace) -> Iterator[Row]:
    """The same step through the public call and torch's autograd, against torch.compile."""
    edges = uniform()
    graph, src, dst = edges.graph(), edges.col_idx, edges.dst
    kernel, cotangent = Difference.kernel(), torch.randn(edges.nodes, 64, device="cuda")
    x = torch.randn(edges.nodes, 64, device="cuda", requires_grad=True)
    compiled = torch.compile(
        lambda x: torch.zeros_like(x).index_add(0, dst, torch.relu(x[src] - x[dst]))
    )

    def ours() -> torch.Tensor:
        return torch.autograd.grad(kernel(graph=graph, ndata={"x": x}), x, cotangent)[0]

    def peer() -> torch.Tensor:
        return torch.autograd.grad(compiled(x), x, cotangent)[0]

    wrong = error(ours(), peer())
    small = edges_of(torch.full((64,), 4, device="cuda")).graph()
    tiny = torch.randn(64, 16, device="cuda")
    with torch.no_grad():
        kernel(graph=small, ndata={"x": tiny})
        calls, start = 2000, time.perf_counter()
        for _ in range(calls):
            kernel(graph=small, ndata={"x": tiny})
        spent = (time.perf_counter() - start) / calls * 1e6
    torch.cuda.synchronize()
    note = f"warm call without gradient {spent:.1f} us on the host"
    note += f"; extra peak {extra_peak(ours):.0f} MiB, peer {extra_peak(peer):.0f} MiB"
    times = median(ours, 40)
    yield Row("public relu sum step", "torch.compile", median(peer, 40), times, times, wrong, note)


def _sweep_bound(bound: Bound) -> list:
    plan = bound.executable.plan

    def make(program: Program, graph: Graph, inputs: list, choice: Choice) -> Bound:
        from tiga.backends.triton.executable import prepare

        made = prepare(plan, bound.executable.relations, choice)
        return Bound(made, graph, inputs, [torch.empty_like(o) for o in bound.outputs])

    return sweep(Program(plan.inputs, plan.outputs), bound.graph, bound.inputs, make)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    found: list[Row] = []
    for part, rows in (("spmm", spmm_rows), ("step", step_rows), ("public", public_rows)):
        if args.only and part not in args.only.split(","):
            continue
        for row in rows(args):
            found.append(row)
            print(row, flush=True)
    print("\n" + HEAD)
    for row in found:
        print(row if row.peer != "cuSPARSE" else replace(row, note=""))
    ratios = [r.ratio for r in found if r.peer == "cuSPARSE"]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean over cuSPARSE: {mean:.2f}")
    if args.out:
        lines = "\n".join(json.dumps(vars(r)) for r in found)
        (args.out / "gpu.jsonl").write_text(lines + "\n")


if __name__ == "__main__":
    main()
