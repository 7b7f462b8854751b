"""Run one kernel forward and backward in a process of its own, and print its extra peak memory.

    python -m tests.cases.memory_program CASE DTYPE

Prints the bytes beyond outputs and gradients at the peak, and those of one edge array.
"""

import ctypes
import gc
import sys
from pathlib import Path

import torch

import tiga as tg

N, DEGREE, F = 20_000, 100, 64
SMALL = 50
REDUCERS = {
    "sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "prod": tg.prod,
    "var": tg.var, "std": tg.std, "softmax": tg.softmax, "logsumexp": tg.logsumexp,
    "linear": tg.sum, "attention": tg.softmax, "second": tg.sum,
    "four": lambda: tg.multi(tg.sum(), tg.mean(), tg.max(), tg.min()),
}  # fmt: skip
"""Cases by the reducer of their messages; `second` is a derivative of a gradient."""

HEADS = 4


class Difference(tg.MessagePassing, torch.nn.Module):
    def __init__(self, name: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.name = name
        self.reducer = REDUCERS[name]()
        self.linear = torch.nn.Linear(F, F, dtype=dtype)

    def edge(self, src, dst, edge):
        if self.name == "attention":
            score = torch.nn.functional.leaky_relu(src.s + dst.t, 0.2)
            return self.reducer(score, src.x.unflatten(-1, (HEADS, F // HEADS)))
        message = torch.relu(src.x - dst.x)
        if self.name == "linear":
            return torch.relu(self.linear(message))
        if self.name == "softmax":
            return self.reducer(src.s * dst.t, message)
        if self.name == "second":
            return message**2
        # Products of 100 numbers near 1 stay finite.
        return 1 + 0.01 * message if self.name == "prod" else message


def random_graph(nodes: int, degree: int = DEGREE) -> tg.Graph:
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, nodes, (2, nodes * degree), generator=generator)
    return tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)


def run(kernel: Difference, graph: tg.Graph, x: torch.Tensor) -> int:
    """One step; the bytes of its outputs, cotangents and gradients."""
    kernel.zero_grad()
    x.grad = None
    shape = (len(x), HEADS) if kernel.name == "attention" else (len(x),)
    scores = {name: torch.rand(shape, dtype=x.dtype, requires_grad=True) for name in "st"}
    y = kernel(graph=graph, ndata={"x": x, **scores})
    if kernel.name == "second":
        return second(x, y)
    results = y if isinstance(y, tuple) else (y,)
    cotangents = [torch.ones_like(r) for r in results]
    torch.autograd.backward(results, cotangents)
    held = [*results, *cotangents, *scores.values(), x.grad, *(p.grad for p in kernel.parameters())]
    return sum(t.numel() * t.element_size() for t in held if t is not None)


def second(x: torch.Tensor, y: torch.Tensor) -> int:
    """The derivative of the squared gradient of the sum of y^2: as a loss on forces has."""
    (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    torch.autograd.backward((first * first).sum())
    return sum(t.numel() * t.element_size() for t in (y, first, x.grad))


def memory(field: str) -> int:
    """A number of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def main(name: str, dtype_name: str) -> None:
    """Compile on small graphs, of short rows and of long ones, prepare the topology, then measure
    one step."""
    dtype = getattr(torch, dtype_name)
    torch.set_num_threads(2)
    kernel = Difference(name, dtype)
    for degree in (DEGREE, 2 * DEGREE):
        small = torch.rand(SMALL, F).to(dtype).requires_grad_()
        run(kernel, random_graph(SMALL, degree), small)
    graph = random_graph(N)
    x = torch.rand(N, F).to(dtype).requires_grad_()
    for side in ("dst", "src"):
        graph.walk(side)
    assert not kernel.diagnostics, kernel.diagnostics
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # free memory would hide what is taken
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    floor = run(kernel, graph, x)
    peak = memory("VmHWM")
    print(peak - before - floor, graph.num_edges * F * dtype.itemsize)


if __name__ == "__main__":
    main(*sys.argv[1:])
