"""Passes from programs to programs keep what a program computes, by the oracle."""

import numpy as np
import pytest

from tests.unit.test_ir_round_trip import EDGES, REDUCERS, RULES, make_input
from tiga.backends.reference import EdgeList, evaluate
from tiga.ops import feature, functions, message, pointwise
from tiga.ops.contract import contract
from tiga.passes.base import Pass
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.expand import Expand
from tiga.passes.fold import Fold
from tiga.passes.hoist import Hoist
from tiga.reducers import Messages
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float64

NUM_SRC, NUM_DST = 5, 4
EXTENTS = {EDGES.src: NUM_SRC, EDGES.dst: NUM_DST, EDGES.edge: 12}
KEEPING = (Fold(), Expand(), Canonicalize(), Hoist())


def _program(reducer) -> Program:
    """Work on either end and on both, a product with a matrix, and a row of the reducer."""
    x = make_input("x", Type(float64, (3,), EDGES.src))
    y = make_input("y", Type(float64, (3,), EDGES.dst))
    w = make_input("w", Type(float64, (3, 2), GLOBAL))
    a = message.gather(EDGES, "src", x)
    b = functions.tanh(message.gather(EDGES, "dst", y))
    value = contract(pointwise.add(functions.exp(pointwise.neg(a)), b), w)
    parts = (feature.feature_sum(value, 0), value) if reducer.arguments == 2 else (value,)
    return Program((x, y, w), (reducer.rows(Messages(EDGES, parts)),))


def _edges(rng: np.random.Generator) -> EdgeList:
    """Twelve edges that leave the last row empty."""
    src = rng.integers(0, NUM_SRC, EXTENTS[EDGES.edge])
    dst = np.sort(rng.integers(0, NUM_DST - 1, EXTENTS[EDGES.edge]))
    return EdgeList(src, dst, NUM_SRC, NUM_DST)


def _array(rng: np.random.Generator, of: Type) -> np.ndarray:
    extent = () if of.space == GLOBAL else (EXTENTS[of.space],)
    values = rng.standard_normal((*extent, *of.shape))
    return values if of.dtype.is_float else values > 0


@pytest.mark.parametrize("step", KEEPING, ids=str)
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_values_are_kept(step: Pass, reducer, rng: np.random.Generator) -> None:
    trained = training(_program(reducer), (0, 1, 2), RULES)
    edges = {EDGES: _edges(rng)}
    for program in (trained, gradient(trained, (0, 1, 2), (0,), RULES).program):
        arrays = [_array(rng, node.type) for node in program.inputs]
        changed = step(program)
        assert changed.inputs == program.inputs
        pairs = zip(evaluate(program, arrays, edges), evaluate(changed, arrays, edges), strict=True)
        for before, after in pairs:
            np.testing.assert_allclose(after, before, rtol=1e-10, atol=1e-12)
