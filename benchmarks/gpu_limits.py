"""What a GPU could do: rows read at random with nothing else to do, and torch's deterministic sums.

python -m benchmarks.gpu_limits
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from benchmarks.gpu import HEAD, Bound, Choice, Row, Step, error, extra_peak, median, replayed
from benchmarks.gpu_cases import GRAPHS, difference, peers, uniform, weighted_sum
from tiga.reducers import Sum

THREADS = 128
ELEMENTS = 16
"""Elements that a thread holds at a time: four accesses of 16 bytes in flight."""

GOAL = 0.6
"""Part of the rate of bare reads that weighted sums of 64 features should reach."""


@triton.jit
def read_rows(index, x, out, edges, width: tl.constexpr, rows: tl.constexpr, window: tl.constexpr):
    """Reads the rows that `index` names, `rows` at a time in windows, and keeps one sum."""
    edge = tl.program_id(0) * rows + tl.arange(0, rows)
    row = tl.load(index + edge, mask=edge < edges, other=0)
    f = tl.program_id(1) * window + tl.arange(0, window)
    mask = (edge < edges)[:, None] & (f < width)[None, :]
    value = tl.load(x + row[:, None] * width + f[None, :], mask=mask, other=0)
    place = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(out + place, tl.sum(tl.sum(value, 1), 0))


def bare_reads(index: torch.Tensor, x: torch.Tensor) -> float:
    """Milliseconds to read the rows of `x` that an int32 index names, in its order."""
    width = x.shape[1]
    window = min(128, width)
    rows = max(1, THREADS * ELEMENTS // window)
    grid = (triton.cdiv(len(index), rows), triton.cdiv(width, window))
    out = torch.empty(grid[0] * grid[1], device="cuda")
    return replayed(
        lambda: read_rows[grid](index, x, out, len(index), width, rows, window, num_warps=4)
    )


def limit_rows() -> Iterator[str]:
    """Weighted sums beside bare reads of the same rows."""
    for name, build in GRAPHS.items():
        edges = build()
        graph, weights = edges.graph(), torch.randn(len(edges.col_idx), device="cuda")
        for width in (1, 16, 64, 256):
            x = torch.randn(edges.nodes, width, device="cuda")
            inputs = [x if width > 1 else x.flatten(), weights]
            ours = replayed(Bound.of(weighted_sum(width), graph, inputs, Choice()))
            limit = bare_reads(edges.col_idx.int(), x)
            rate = len(weights) * width * 4 / limit / 1e9
            goal = f", goal {GOAL:.0%}" if width == 64 else ""
            yield (
                f"{name:12s} F={width:<4d} bare reads {limit:.4f} ms ({rate:.2f} TB/s), weighted "
                f"sum {ours:.4f} ms: {limit / ours:.0%} of their rate{goal}"
            )


def deterministic_row() -> Row:
    """relu(x_src - x_dst) summed, forward and backward, beside torch with deterministic sums."""
    edges = uniform()
    graph, src, dst = edges.graph(), edges.col_idx, edges.dst
    x, cotangent = torch.randn(2, edges.nodes, 64, device="cuda")
    ours = Step.of(difference((Sum(),)), graph, [x], [cotangent], Choice())
    leaf, function = x.clone().requires_grad_(), peers()["relu sum"][1]

    def peer() -> torch.Tensor:
        return torch.autograd.grad(function(leaf, src, dst), leaf, cotangent)[0]

    torch.use_deterministic_algorithms(True)
    try:
        expected, peer_ms, peak = peer(), median(peer, 40), extra_peak(peer)
    finally:
        torch.use_deterministic_algorithms(False)
    ours()
    wrong = error(ours.backward.outputs[0], expected)
    note = f"scratch {extra_peak(ours):.0f} MiB, peer {peak:.0f} MiB; goal 5x"
    times = replayed(ours, 40), median(ours, 40)
    return Row("step deterministic sum", "torch", peer_ms, *times, wrong, note)


def main() -> None:
    torch.manual_seed(0)
    for line in limit_rows():
        print(line, flush=True)
    print(HEAD)
    print(deterministic_row())


if __name__ == "__main__":
    main()
