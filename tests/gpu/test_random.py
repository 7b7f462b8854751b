"""Random bits and positions of edges: the same numbers as the oracle, in both walks."""

import numpy as np
import pytest

from tests.gpu import harness
from tests.gpu.harness import RELATION, SRC
from tiga.ops.align import expand_to
from tiga.ops.leaf import Input, constant, zeros_like
from tiga.ops.message import EdgeIndex, gather, reduce
from tiga.ops.pointwise import ge, where
from tiga.ops.random import RandomBits
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, int64


@pytest.mark.parametrize("shape", [(), (4,)])
def test_dropout_and_positions(shape):
    x = Input("x", Type(float32, shape, SRC))()
    seed = Input("seed", Type(int64, (), GLOBAL))()
    lane = Input("lane", Type(int64, shape, GLOBAL))()
    message = gather(RELATION, "src", x)
    edge = RELATION.edge
    position = EdgeIndex(RELATION)()
    bits = RandomBits(0, 0)(*(expand_to(n, shape, edge) for n in (seed, position, lane)))
    keeps = ge(bits, constant(2**31, bits.type))
    kept = where(keeps, message, zeros_like(message))
    outputs = [
        reduce(RELATION, "dst", "sum", kept),
        reduce(RELATION, "src", "sum", kept),
        reduce(RELATION, "dst", "min", position),
    ]
    program = Program((x, seed, lane), tuple(outputs))
    rng = np.random.default_rng(0)
    problem = harness.problem(rng, 23, 29, rng.integers(0, 12, 29))
    size = int(np.prod(shape))
    arrays = [
        rng.standard_normal((23, *shape)).astype(np.float32),
        np.array(-(2**60) + 12345),
        np.arange(size).reshape(shape),
    ]
    got = harness.run(program, arrays, problem)
    for one, other, node in zip(
        got, harness.oracle(program, arrays, problem), outputs, strict=True
    ):
        harness.assert_close(one, other, node.type.dtype, repr(node))
