"""Sums element after element, in row-major order: for whoever asks for them, not for speed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.moves import contiguous
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.ops.dense import Dense
from tiga.ops.feature import permute
from tiga.passes.tensor_fusable import is_axes_reduction
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import DType, Type

LANES = 128
"""Sums of a program."""


@dataclass(frozen=True)
class OrderedSum(Dense):
    """The sum over the last `count` axes, which no kernel joins with anything."""

    name: ClassVar[str] = "ordered_sum"
    arity = 1
    count: int

    def infer(self, *types: Type) -> Type:
        (x,) = types
        return x.with_shape(x.shape[: len(x.shape) - self.count])


def in_order(program: Program) -> Program:
    """An equal program whose sums add element after element."""
    return program.rewritten(_rule)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_axes_reduction(node) or node.op.combine != "add" or not inputs[0].type.size:
        return None
    (x,), axes = inputs, node.op.axes
    kept = [axis for axis in range(len(x.type.shape)) if axis not in axes]
    return OrderedSum(len(axes))(permute(x, (*kept, *axes)), where=node.where)


@lru_cache(maxsize=32)
def ordered_sum(dtype: DType) -> KernelSource:
    """`out[r, p] = x[r, 0, p] + x[r, 1, p] + ...` for `parts` numbers p of each element."""
    part = dv.part_dtype(dtype)
    element = loaded("tl.load(x + (row * columns + k) * parts + p, mask=inside, other=0)", part)
    result = stored(Term("total", part.compute), part).text
    text = f"""@triton.jit
def ordered_sum(x, out, count, columns, parts):
    lane = tl.program_id(0).to(tl.int64) * {LANES} + tl.arange(0, {LANES})
    inside = lane < count
    row, p = lane // parts, lane % parts
    total = tl.full([{LANES}], 0, {dtype_text(part.compute)})
    for k in range(0, columns):
        total = total + {element.text}
    tl.store(out + lane, {result}, mask=inside)
"""
    parameters = (
        Parameter("x", pointer_type(part), "x"),
        Parameter("out", pointer_type(part), "out"),
        *(Parameter(name, "i64", name) for name in ("count", "columns", "parts")),
    )
    return KernelSource("ordered_sum", text, parameters, (), Tile(1, LANES, 4))


def add_in_order(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    """The value of an `OrderedSum`."""
    dtype, x = node.type.dtype, contiguous(inputs[0])
    made, parts = room.array(node.type), dv.parts(dtype)
    count = made.size * parts
    columns = math.prod(x.shape[x.ndim - node.op.count :])
    numbers = [None, None, count, columns, parts]
    launch = room.machine.bind(ordered_sum(dtype), (-(-count // LANES), 1, 1), numbers)
    launch([x.address, made.address])
    return made
