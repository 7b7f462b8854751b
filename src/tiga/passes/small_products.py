"""Products of edge values with a matrix that is too small for matrix units, as sums of products."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tiga.ops.align import expand_to
from tiga.ops.contract import is_contract, is_outer_sum
from tiga.ops.feature import feature_sum, reshape
from tiga.ops.message import reduce_all, sum_to
from tiga.ops.pointwise import cast, mul
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import Relation, Space

MOST_ELEMENTS = 64
"""Elements of a matrix up to which each is a multiplication of its own. Matrix units take 16 x 16
at least and tiles of 16 edges: such a matrix leaves most of one empty, and as many edges leave few
registers to what else is computed of them."""

MOST_PER_EDGE = 256
"""Products of one edge up to which they stand beside each other: several rows may be multiplied."""


def _products(x: Node, y: Node) -> Node:
    """x [..., K] by y [..., 1, M] or [K, M], element by element: [..., K, M], in compute dtype."""
    wide = cast(x, x.type.dtype.compute)
    shape, space = (*x.type.shape, y.type.shape[-1]), x.type.space
    left = expand_to(reshape(wide, (*x.type.shape, 1)), shape, space)
    return mul(left, expand_to(cast(y, wide.type.dtype), shape, space))


def _rule(edges: Mapping[Space, Relation], node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not (is_contract(node) or is_outer_sum(node)):
        return None
    x, y = inputs
    relation = edges.get(x.type.space)
    if relation is None:
        return None
    width = y.type.shape[-1]
    is_small = x.type.shape[-1] * width <= MOST_ELEMENTS and x.type.size * width <= MOST_PER_EDGE
    if not is_small or not x.type.dtype.is_float:
        return None
    if is_contract(node):
        return cast(feature_sum(_products(x, y), len(x.type.shape) - 1), node.type.dtype)
    products = _products(x, reshape(y, (*y.type.shape[:-1], 1, y.type.shape[-1])))
    for _ in x.type.shape[:-1]:
        products = feature_sum(products, 0)
    return cast(reduce_all(sum_to(relation, "dst", products)), node.type.dtype)


@dataclass(frozen=True)
class SmallProducts(Pass, name="gf-small-products"):
    """Multiply edge values with small matrices as sums of products, element by element.

    Matrix units take 16 x 16 at least.
    """

    def __call__(self, form: Program) -> Program:
        return form.rewritten(partial(_rule, form.edges))
