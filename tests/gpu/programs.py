"""Programs that exercise every way in which a kernel is put together."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.gpu.harness import DST, RELATION, SRC
from tiga.ops.align import expand_to
from tiga.ops.contract import contract
from tiga.ops.feature import concat, feature_max, feature_sum, permute, put, reshape, take
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input, constant
from tiga.ops.message import degree, gather, reduce_all, sum_to
from tiga.ops.pointwise import add, div, gt, maximum, mul, sub, where
from tiga.reducers import Max, Messages, Min, Softmax, Sum
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Space, Type, bool_

EDGE = RELATION.edge


@dataclass(frozen=True)
class Case:
    """A program and the inputs that gradients are wanted of."""

    program: Program
    wanted: tuple[int, ...]


def _input(name: str, dtype: DType, shape: tuple[int, ...], space: Space) -> Node:
    return Input(name, Type(dtype, shape, space))()


def _src(x: Node) -> Node:
    return gather(RELATION, "src", x)


def _dst(x: Node) -> Node:
    return gather(RELATION, "dst", x)


def _case(inputs: tuple[Node, ...], *outputs: Node) -> Case:
    floats = (i for i, n in enumerate(inputs) if n.type.dtype.is_float)
    return Case(Program(inputs, outputs), tuple(floats))


def _sum(m: Node) -> Node:
    return Sum().rows(Messages(RELATION, (m,)))


def reducer(made, dtype: DType, shape: tuple[int, ...]) -> Case:
    """A reducer over a message that reads both ends."""
    x, y = _input("x", dtype, shape, SRC), _input("y", dtype, shape, DST)
    message = sub(_src(x), _dst(y))
    if not isinstance(made, (Max, Min)):
        # A function differs by rounding between backends, and then another message may win.
        message = tanh(message)
    return _case((x, y), made.rows(Messages(RELATION, (message,))))


def softmax(dtype: DType, shape: tuple[int, ...]) -> Case:
    """Attention with a score per edge or per head, as GATv2 computes it."""
    x, y = _input("h_src", dtype, shape, SRC), _input("h_dst", dtype, shape, DST)
    a = _input("a", dtype, shape, GLOBAL)
    z = add(_src(x), _dst(y))
    slope = where(gt(z, constant(0, z.type)), z, mul(z, constant(0.2, z.type)))
    score = feature_sum(mul(slope, expand_to(a, shape, EDGE)), len(shape) - 1)
    return _case((x, y, a), Softmax().rows(Messages(RELATION, (score, _src(x)))))


def weighted_sum(dtype: DType, shape: tuple[int, ...]) -> Case:
    x, w = _input("x", dtype, shape, SRC), _input("w", dtype, (), EDGE)
    return _case((x, w), _sum(mul(expand_to(w, shape, EDGE), _src(x))))


def masked(dtype: DType, shape: tuple[int, ...]) -> Case:
    x, w = _input("x", dtype, shape, SRC), _input("w", dtype, (), EDGE)
    keep = _input("keep", bool_, (), EDGE)
    message = mul(expand_to(w, shape, EDGE), _src(x))
    return _case((x, w, keep), Max().rows(Messages(RELATION, (message,), keep=keep)))


def concatenation(dtype: DType) -> Case:
    x, y = _input("x", dtype, (5,), SRC), _input("y", dtype, (3,), DST)
    e = _input("e", dtype, (2,), EDGE)
    joined = concat(0, _src(x), _dst(y), e)
    message = mul(joined, take(joined, 0, tuple(reversed(range(10)))))
    return _case((x, y, e), Max().rows(Messages(RELATION, (message,))))


def registers(dtype: DType) -> Case:
    """Movements of values that are in no array."""
    x, e = _input("x", dtype, (5,), SRC), _input("e", dtype, (2,), EDGE)
    joined = tanh(concat(0, tanh(_src(x)), e))
    picked = take(joined, 0, (6, 0, 3, 3))
    placed = put(take(joined, 0, (0, 5)), 0, (1, 2), 4)
    return _case((x, e), _sum(mul(picked, placed)))


def permuted(dtype: DType) -> Case:
    x, y = _input("x", dtype, (3, 5), SRC), _input("y", dtype, (5, 3), DST)
    product = tanh(mul(_src(x), permute(_dst(y), (1, 0))))
    flat = reshape(product, (15,))
    return _case((x, y), _sum(reshape(take(flat, 0, tuple(range(1, 13))), (2, 6))))


def cross(dtype: DType) -> Case:
    x, y = _input("x", dtype, (3,), SRC), _input("y", dtype, (3,), DST)
    p, q = _src(x), _dst(y)
    first = mul(take(p, 0, (1, 2, 0)), take(q, 0, (2, 0, 1)))
    return _case((x, y), _sum(sub(first, mul(take(p, 0, (2, 0, 1)), take(q, 0, (1, 2, 0))))))


def farthest(dtype: DType) -> Case:
    """A maximum of sums over features: their order must be the same in every walk."""
    x, y = _input("x", dtype, (37,), SRC), _input("y", dtype, (37,), DST)
    step = sub(_src(x), _dst(y))
    return _case((x, y), Max().rows(Messages(RELATION, (feature_sum(mul(step, step), 0),))))


def largest(dtype: DType) -> Case:
    x, y = _input("x", dtype, (3,), SRC), _input("y", dtype, (3,), DST)
    return _case((x, y), _sum(feature_max(mul(_src(x), _dst(y)), 0)))


def edge_network(dtype: DType, inner: int, outer: int) -> Case:
    x, y = _input("x", dtype, (inner,), SRC), _input("y", dtype, (inner,), DST)
    first = _input("first", dtype, (inner, outer), GLOBAL)
    second = _input("second", dtype, (outer, 4), GLOBAL)
    hidden = tanh(contract(tanh(sub(_src(x), _dst(y))), first))
    return _case((x, y, first, second), _sum(tanh(contract(hidden, second))))


def difference_network(dtype: DType) -> Case:
    """A product with a difference of both ends, which needs none per edge."""
    x, y = _input("x", dtype, (16,), SRC), _input("y", dtype, (16,), DST)
    matrix = _input("matrix", dtype, (16, 16), GLOBAL)
    return _case((x, y, matrix), _sum(tanh(contract(sub(_src(x), _dst(y)), matrix))))


def joined_rows(dtype: DType) -> Case:
    """Reductions of one message, side by side and scaled, as PNA joins them."""
    x, y = _input("x", dtype, (8,), SRC), _input("y", dtype, (8,), DST)
    message = Messages(RELATION, (sub(_src(x), _dst(y)),))
    joined = concat(0, Sum().rows(message), Max().rows(message))
    count = expand_to(degree(RELATION, "dst", dtype), (16,), DST)
    return _case((x, y), concat(0, joined, mul(joined, count)))


def joined_layer(dtype: DType, width: int) -> Case:
    """A product of a value joined with two reductions, each as it is and scaled by the degree."""
    shape = (width,)
    x, y = _input("x", dtype, shape, SRC), _input("y", dtype, shape, DST)
    matrix = _input("matrix", dtype, (width, 5 * width), GLOBAL)
    message = sub(_src(x), _dst(y))
    found = (r.rows(Messages(RELATION, (message,))) for r in (Sum(), Max()))
    rows = concat(1, *(reshape(row, (1, width)) for row in found))
    scale = expand_to(reshape(degree(RELATION, "dst", dtype), (1, 1)), rows.type.shape, DST)
    both = concat(1, rows, mul(rows, scale))
    made = contract(concat(0, y, reshape(both, (4 * width,))), permute(matrix, (1, 0)))
    return _case((x, y, matrix), tanh(made))


def node_network(dtype: DType) -> Case:
    """Products of node values before and after a sum, with a turned matrix, biases and a relu."""
    x, b = _input("x", dtype, (20,), SRC), _input("b", dtype, (40,), GLOBAL)
    y, c = _input("y", dtype, (24,), DST), _input("c", dtype, (3, 8), GLOBAL)
    first, second = _input("w", dtype, (40, 20), GLOBAL), _input("v", dtype, (40, 24), GLOBAL)
    made = add(contract(x, permute(first, (1, 0))), expand_to(b, (40,), SRC))
    hidden = where(gt(made, constant(0, made.type)), made, constant(0, made.type))
    sent = reshape(contract(hidden, second), (3, 8))
    heads = feature_sum(mul(sent, expand_to(c, (3, 8), SRC)), 1)
    rows = _sum(mul(_src(sent), expand_to(_src(reshape(heads, (3, 1))), (3, 8), EDGE)))
    square = _input("u", dtype, (24, 24), GLOBAL)
    kept = contract(y, square)
    return _case(
        (x, b, y, c, first, second, square), add(reshape(rows, (24,)), kept), reduce_all(kept)
    )


def edge_output(dtype: DType) -> Case:
    x, y = _input("x", dtype, (3,), SRC), _input("y", dtype, (3,), DST)
    return _case((x, y), mul(_src(x), _dst(y)))


def total(dtype: DType) -> Case:
    x, y = _input("x", dtype, (3,), SRC), _input("y", dtype, (3,), DST)
    return _case((x, y), reduce_all(sum_to(RELATION, "dst", tanh(mul(_src(x), _dst(y))))))


def normalized(dtype: DType) -> Case:
    x = _input("x", dtype, (3,), SRC)
    count = degree(RELATION, "dst", dtype)
    count = maximum(count, constant(1, count.type))
    return _case((x,), div(sum_to(RELATION, "dst", _src(x)), expand_to(count, (3,), DST)))


MAKERS: dict[str, Callable[[DType], Case]] = {
    "softmax": lambda d: softmax(d, (16,)), "heads": lambda d: softmax(d, (4, 5)),
    "weighted_sum": lambda d: weighted_sum(d, (6,)),
    "weighted_numbers": lambda d: weighted_sum(d, ()), "masked": lambda d: masked(d, (3,)),
    "concatenation": concatenation, "registers": registers, "permuted": permuted, "cross": cross,
    "farthest": farthest, "largest": largest, "edge_network": lambda d: edge_network(d, 16, 32),
    "edge_network_large": lambda d: edge_network(d, 100, 128),
    "edge_network_small": lambda d: edge_network(d, 3, 5), "difference_network": difference_network,
    "joined_rows": joined_rows, "joined_layer": lambda d: joined_layer(d, 16),
    "node_network": node_network, "edge_output": edge_output, "total": total,
    "normalized": normalized,
}  # fmt: skip
"""Programs by name."""
