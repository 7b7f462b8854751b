"""Nodes that are other nodes as soon as they are made."""

import numpy as np
import pytest

from tests.unit.test_ir_round_trip import make_input
from tiga.ops.contract import outer_sum
from tiga.ops.feature import permute
from tiga.ops.leaf import constant
from tiga.ops.pointwise import div
from tiga.types import GLOBAL, Space, Type, float32, int64

NODES = Space("nodes", "node")


@pytest.mark.parametrize("divisor", [4.0, -0.5, 2.0**14, 2.0**-13])
def test_a_quotient_by_a_power_of_two_is_a_product_with_the_same_bits(divisor):
    x = make_input("x", Type(float32, (), NODES))
    made = div(x, constant(divisor, x.type))
    assert made.op.name == "mul"
    values = np.float32([1.1, -3e38, 1e-45, 1e-39, 0.0, np.inf])
    with np.errstate(over="ignore"):
        product = values * np.float32(made.inputs[1].op.value)
        assert (product == values / np.float32(divisor)).all()


@pytest.mark.parametrize("divisor", [3.0, 2.0**15, 0.0, float("inf"), float("nan")])
def test_other_quotients_stay(divisor):
    x = make_input("x", Type(float32, (), NODES))
    assert div(x, constant(divisor, x.type)).op.name == "div"


def test_whole_quotients_stay():
    x = make_input("x", Type(int64, (), NODES))
    assert div(x, constant(4, x.type)).op.name == "div"


def test_a_turned_sum_of_outer_products_is_that_of_exchanged_factors():
    x, y = (make_input(n, Type(float32, (width,), NODES)) for n, width in (("x", 3), ("y", 5)))
    turned = permute(outer_sum(x, y), (1, 0))
    assert turned is outer_sum(y, x)
    assert turned.type == Type(float32, (5, 3), GLOBAL)
