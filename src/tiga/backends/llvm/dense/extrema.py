"""The position of the extremum of all elements: the extrema of blocks, by a kernel that reads each
element once; then the one block that has it."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from tiga.backends.llvm.dense.run import Template, template
from tiga.ops.leaf import Input
from tiga.passes.tensor_plan import plan
from tiga.passes.tensor_spec import KernelStep
from tiga.trace.node import Node, intern
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type

BLOCK = 8192
"""Elements of a block."""


def blocks_step(node: Node) -> KernelStep:
    """The kernel of an `argmax` or `argmin` over all elements: the extremum of every block."""
    given = node.inputs[0].type
    whole = Type(given.dtype, (given.size // BLOCK, BLOCK), GLOBAL)
    x = intern(Input("x", whole), (), whole)
    (step,) = plan(Program((x,), (node.op.extremum((1,))(x),)), True)
    assert isinstance(step, KernelStep)
    return step


@lru_cache(maxsize=256)
def compile_blocks(node: Node) -> Template:
    """The kernel, compiled."""
    return template(blocks_step(node))


def position_of_extremum(node: Node, array: np.ndarray) -> np.ndarray:
    """The value of an `argmax` or `argmin` over all elements: the first of ties, or of NaNs."""
    flat = np.ascontiguousarray(array).reshape(-1)
    whole = flat.size // BLOCK * BLOCK
    (best,) = compile_blocks(node).run([flat[:whole].reshape(-1, BLOCK)])
    along, extremum = replace(node.op, axis=0), node.op.extremum((0,))
    if whole < flat.size:
        best = np.append(best, extremum.compute(flat[whole:]))
    start = int(along.compute(best)) * BLOCK
    position = start + int(along.compute(flat[start : start + BLOCK]))
    return np.full(node.type.shape, position, np.int64)
