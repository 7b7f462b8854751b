"""Case 4: no array of messages, measured in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARE = 0.05
"""Of one edge array, at mean degree 100: beyond outputs and gradients."""

SHARE_OF_SECOND = 0.10
"""As much again for a derivative of a gradient, whose squares torch itself makes on the way."""

REDUCERS = ("sum", "mean", "max", "min", "prod", "var", "std", "softmax", "logsumexp", "four")
CASES = (*REDUCERS, "linear", "attention", "second")
DTYPES = ("float32", "bfloat16", "float16")
QUICK = (("sum", "float32"), ("std", "bfloat16"))

MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Arrays are mapped one by one and go back when they are freed: what is read is what is alive, and
not how the C library happened to lay out its heap."""


def _case(name, dtype):
    slow = () if (name, dtype) in QUICK else (pytest.mark.slow,)
    return pytest.param(name, dtype, marks=slow, id=f"{name}-{dtype}")


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc")
@pytest.mark.parametrize(("name", "dtype"), [_case(n, d) for n in CASES for d in DTYPES])
def test_forward_and_backward_need_no_message_array(name, dtype):
    command = [sys.executable, "-m", "tests.cases.memory_program", name, dtype]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, env={**os.environ, **MAPPED}
    )
    extra, edge_array = map(int, done.stdout.split())
    share = SHARE_OF_SECOND if name == "second" else SHARE
    assert extra < share * edge_array, f"{extra / edge_array:.1%} of one edge array"
