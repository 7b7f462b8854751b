"""Case 4: no array of messages, measured in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARE = 0.05
"""Of one edge array, at mean degree 100: beyond outputs and gradients."""

ABOVE = pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="float32 node arrays count double against 16-bit edges: what is saved for the gradient, "
    "and row values that both walks of it read, would have to be made window by window of features",
)
QUICK = ("sum", "softmax")
CASES = ("sum", "mean", "max", "min", "prod", "softmax", "linear")
DTYPES = ("float32", "bfloat16")


def _case(name, dtype, *marks):
    slow = () if name in QUICK else (pytest.mark.slow,)
    return pytest.param(name, dtype, marks=(*marks, *slow), id=f"{name}-{dtype}")


PARAMETERS = [
    *(_case(name, dtype) for name in CASES for dtype in DTYPES),
    *(_case(name, "float32") for name in ("std", "four")),
    *(_case(name, "bfloat16", ABOVE) for name in ("std", "four")),
]


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc")
@pytest.mark.parametrize(("name", "dtype"), PARAMETERS)
def test_forward_and_backward_need_no_message_array(name, dtype):
    command = [sys.executable, "-m", "tests.cases.memory_program", name, dtype]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    extra, edge_array = map(int, done.stdout.split())
    assert extra < SHARE * edge_array, f"{extra / edge_array:.1%} of one edge array"
