"""Edge values computed part by part: gates of three parts, with derivatives of second order."""

import numpy as np
import pytest

from tests.gpu import harness
from tests.unit.test_edge_parts import both_orders
from tiga.types import float32


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("order", [0, 1, 2], ids=["forward", "gradient", "second"])
def test_they_agree_with_the_oracle(order: int, width: int) -> None:
    rng = np.random.default_rng(order)
    where = harness.problem(rng, 9, 7, [3, 0, 2, 40, 1, 5, 300])
    program = both_orders(float32, width)[order]
    arrays = harness.fields(rng, where, program.inputs)
    found, wanted = harness.run(program, arrays, where), harness.oracle(program, arrays, where)
    for node, mine, right in zip(program.outputs, found, wanted, strict=True):
        harness.assert_close(mine, right, float32, str(node.type))
