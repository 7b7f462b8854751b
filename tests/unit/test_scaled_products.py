"""Products of values joined with scaled copies of themselves, and their gradients."""

import numpy as np
import pytest

from tiga.backends.reference import EdgeList, evaluate
from tiga.ops import feature, pointwise
from tiga.ops.contract import Contract, OuterSum, contract
from tiga.ops.feature import Concat
from tiga.ops.leaf import Input
from tiga.passes.differentiate import RULES
from tiga.passes.scaled_products import ScaledProducts
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, float64

NODES = Space("dst", "node")
WIDTH, OUT, COUNT = 6, 2, 7
NO_EDGES = {Relation("r", NODES, NODES): EdgeList(np.empty(0, int), np.empty(0, int), COUNT, COUNT)}


def _input(name: str, shape: tuple[int, ...], space: Space = NODES) -> Node:
    return Input(name, Type(float64, shape, space))()


def _program(copies: int, out: int = OUT, lead: tuple[int, ...] = ()) -> Program:
    """A value of its own beside one that is there as it is and scaled, times a matrix."""
    x, y = _input("x", (*lead, 3)), _input("y", (*lead, WIDTH))
    scales = [_input(f"s{i}", (*lead, 1)) for i in range(copies)]
    shape = (*lead, WIDTH)
    scaled = [pointwise.mul(y, feature.broadcast(s, shape)) for s in scales]
    inner = feature.concat(len(lead), y, *scaled)
    joined = feature.concat(len(lead), x, inner)
    flat = feature.reshape(joined, joined.type.shape[-1:])
    w = _input("w", (flat.type.size, out), GLOBAL)
    b = _input("b", (out,))
    return Program((x, y, *scales, w, b), (pointwise.add(contract(flat, w), b),))


def _widest(program: Program) -> int:
    """The width of the widest value of nodes that a product reads."""
    products = [n for n in program.order if isinstance(n.op, Contract | OuterSum)]
    read = [child for n in products for child in n.inputs if child.type.space == NODES]
    return max(child.type.size for child in read)


@pytest.mark.parametrize("lead", [(), (1,)])
def test_a_layer_and_its_gradient(lead: tuple[int, ...], rng: np.random.Generator) -> None:
    program = _program(2, lead=lead)
    wanted = tuple(range(len(program.inputs)))
    trained = training(program, wanted, RULES)
    backward = gradient(trained, wanted, (0,), RULES).program
    for before in (trained, backward):
        after = ScaledProducts()(before)
        assert _widest(before) == 3 + 3 * WIDTH
        assert _widest(after) == WIDTH
        arrays = [_array(rng, node.type) for node in before.inputs]
        results = [evaluate(p, arrays, NO_EDGES) for p in (before, after)]
        for expected, found in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def _array(rng: np.random.Generator, of: Type) -> np.ndarray:
    extent = () if of.space == GLOBAL else (COUNT,)
    return rng.standard_normal((*extent, *of.shape))


def test_copies_that_take_less_memory_than_their_products_stay() -> None:
    program = _program(2, out=3 * WIDTH)
    assert ScaledProducts()(program) == program


def test_values_that_are_joined_once_stay() -> None:
    program = _program(0)
    after = ScaledProducts()(program)
    assert after == program
    assert any(isinstance(node.op, Concat) for node in after.order)
