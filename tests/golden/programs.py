"""A few small programs whose kernels are short enough to read, and their text."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import tiga as tg
from tiga.ir.context import make_context, parse
from tiga.passes.native import NativePass


class WeightedSum(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return edge.w * src.x


class Difference(tg.MessagePassing):
    reducer = tg.max()

    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x)


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        score = torch.nn.functional.leaky_relu(src.score + dst.score, 0.2)
        return self.reducer(score, src.x)


class EdgeLinear(tg.MessagePassing, torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width, bias=False).requires_grad_(False)

    def edge(self, src, dst, edge):
        return torch.relu(self.linear(torch.relu(src.x - dst.x)))


@dataclass(frozen=True)
class Example:
    """A kernel and the trailing shape of each field; gradients are taken of all or of none."""

    make: Callable[[], tg.MessagePassing]
    src: dict[str, tuple[int, ...]]
    dst: dict[str, tuple[int, ...]]
    edge: dict[str, tuple[int, ...]]
    gradient: bool = False

    def run(self) -> tg.MessagePassing:
        """The kernel, called once on a small graph."""
        graph = tg.Graph.from_csr([0, 2, 2, 3], [1, 0, 1], num_src=2)
        extents = {"src": graph.num_src, "dst": graph.num_dst, "edge": graph.num_edges}
        fields = {
            space: {
                name: torch.ones(extent, *shape, requires_grad=self.gradient)
                for name, shape in getattr(self, space).items()
            }
            for space, extent in extents.items()
        }
        kernel = self.make()
        out = kernel(graph=graph, **fields)
        if self.gradient:
            leaves = [field for group in fields.values() for field in group.values()]
            torch.autograd.grad(out, leaves, torch.ones_like(out))
        return kernel


PROGRAMS = {
    "weighted_sum_narrow": Example(WeightedSum, {"x": ()}, {}, {"w": ()}),
    "weighted_sum_wide": Example(WeightedSum, {"x": (16,)}, {}, {"w": (1,)}),
    "difference_max_gradient": Example(Difference, {"x": (8,)}, {"x": (8,)}, {}, gradient=True),
    "softmax_attention": Example(Attention, {"score": (), "x": (8,)}, {"score": ()}, {}),
    "edge_linear": Example(lambda: EdgeLinear(4), {"x": (4,)}, {"x": (4,)}, {}),
}

_START = "module {\n"


def _simplified(module: str) -> str:
    """A module without repeated and folded constants, which nobody wants to read."""
    with make_context([]) as context:
        parsed = parse(module, context)
        for name in ("canonicalize", "cse"):
            native = NativePass.named(name)
            assert native is not None
            native(parsed)
        return str(parsed)


def _section(section: str) -> str:
    title, *modules = section.split(_START)
    return f"// {title.strip()}\n" + "".join(_simplified(_START + module) for module in modules)


def text(name: str) -> str:
    """The kernels of a program in upstream dialects, once MLIR has folded and merged."""
    sections = PROGRAMS[name].run().ir("llvm").split("// program 0, ")
    return "".join(map(_section, sections[1:]))
