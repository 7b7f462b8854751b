"""Which ops of whole-tensor programs compiled kernels take."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tiga.ops import complex_table
from tiga.ops.base import Pointwise
from tiga.ops.tensor_index import Pick
from tiga.ops.tensor_reduce import Reduction
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program

COMPLEX_OPS = frozenset(
    ("add", "sub", "mul", "neg", "div", "conj", "real", "imag", "make_complex", "where",
     "stop_gradient")
)  # fmt: skip
"""Ops on complex numbers that kernels of every backend have, by name."""


KNOWN = (Origin.NUMBER, Origin.POSITION)
"""Where values come from that need no memory."""


@dataclass(frozen=True)
class Target:
    """What a backend's kernels compute: `functions` and `int_functions` are pointwise ops that it
    has on floats and on integers beside those with a lowering, `complex_ops` those that it has on
    complex numbers; `combines` the pointwise ops by which it reduces. `grouped` says that its
    reductions over rows may add a few neighbouring ones each, `indexed` that it reads elements at
    positions that are values, `scans` that it carries values along rows, and `windows` that it
    reads slices, permutations and padding where they lie in memory."""

    functions: frozenset[str] = frozenset()
    int_functions: frozenset[str] = frozenset()
    complex_ops: frozenset[str] = COMPLEX_OPS
    combines: frozenset[str] = frozenset(("add", "maximum", "minimum"))
    grouped: bool = False
    indexed: bool = False
    scans: bool = False
    windows: bool = False


CPU = Target(
    functions=frozenset(("log2", "log10", "nextafter", "floor_divide", "remainder")),
    int_functions=frozenset(("floor_divide", "remainder")),
    complex_ops=COMPLEX_OPS | frozenset(complex_table.FUNCTIONS) | {"cast"},
    combines=frozenset(("add", "mul", "maximum", "minimum")),
    grouped=True,
    indexed=True,
    scans=True,
    windows=True,
)


def expanded(program: Program, target: Target, has_call: Callable[[Node], bool]) -> Program:
    """An equal program in which what kernels of a target do not reduce or carry by, and no library
    call of theirs computes, is made of simpler ops, where ops say of which."""

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        op = node.op
        stays = op.combine in target.combines or (op.carries and target.scans) or has_call(node)
        if stays or not inputs or not inputs[0].type.size:
            return None
        return op.expand(*inputs)

    return program.rewritten(rule)


def is_pointwise(node: Node, target: Target = CPU) -> bool:
    """Whether a kernel can compute this pointwise op on its operands' types."""
    op = node.op
    if not op.pointwise:
        return False
    types = [node.type.dtype, *(child.type.dtype for child in node.inputs)]
    if any(d.is_complex for d in types):
        return op.name in target.complex_ops
    if not op.widens and types[0] != types[0].compute:
        return False
    functions = target.functions if types[0].is_float else target.int_functions
    has_code = type(op).lower is not Pointwise.lower or op.name in functions
    return op.converts or (has_code and (not op.of_floats or types[-1].is_float))


class Role(Enum):
    """How kernels compute a value."""

    VIEW = "view"
    REDUCTION = "reduction"
    GATHER = "gather"
    SCAN = "scan"
    POINTWISE = "pointwise"


def role_of(node: Node, target: Target = CPU) -> Role | None:
    """How the kernels of a target compute a value; None if they do not."""
    if node.op.is_view:
        return Role.VIEW
    for role, computes in _COMPUTED.items():
        if computes(node, target):
            return role
    return None


def is_axes_reduction(node: Node) -> bool:
    """Whether a value is the reduction of any axes of a whole tensor."""
    return isinstance(node.op, Reduction)


def is_reduction(node: Node, target: Target = CPU) -> bool:
    """Whether a kernel can compute this reduction."""
    dtype = node.type.dtype
    known = is_axes_reduction(node) and node.op.combine in target.combines
    ordered = not (dtype.is_complex and node.op.selects)
    return known and ordered and dtype.kind != "b"


def is_gather(node: Node, target: Target = CPU) -> bool:
    """Whether a kernel can read elements at these positions."""
    return target.indexed and isinstance(node.op, Pick) and node.inputs[0].type.size > 0


def is_scan(node: Node, target: Target = CPU) -> bool:
    """Whether a kernel can carry this scan along rows: it goes along the last axis."""
    if not (target.scans and node.op.carries) or node.type.dtype.kind == "b":
        return False
    return math.prod(node.type.shape[node.op.axis + 1 :]) == 1


_COMPUTED: dict[Role, Callable[[Node, Target], bool]] = {
    Role.REDUCTION: is_reduction,
    Role.GATHER: is_gather,
    Role.SCAN: is_scan,
    Role.POINTWISE: is_pointwise,
}
