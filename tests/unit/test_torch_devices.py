"""A program is compiled for the device that runs it: what one refuses, another may compute."""

import subprocess
import sys

import pytest
import torch

from tiga.errors import Unfusable
from tiga.frontends.torch.unit import Unit
from tiga.ops.feature import feature_sum
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul
from tiga.trace.program import Program
from tiga.types import Relation, Space, Type, float32

EDGES = Relation("edges", Space("src", "node"), Space("dst", "node"))
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def wide() -> Unit:
    """Values that mix more features than kernels of the CPU hold, and fewer than a GPU's do."""
    x = Input("x", Type(float32, (10000,), EDGES.src))()
    y = Input("y", Type(float32, (10000,), EDGES.dst))()
    score = feature_sum(mul(gather(EDGES, "src", x), gather(EDGES, "dst", y)), 0)
    return Unit(Program((x, y), (sum_to(EDGES, "dst", score),)))


def test_a_program_is_compiled_when_it_is_run(wide):
    runnable = wide.plain()
    assert not runnable.is_compiled
    assert wide.runnables() == []


def test_what_the_cpu_refuses_a_gpu_computes(wide):
    runnable = wide.plain()
    for _ in range(2):  # a refusal is remembered
        with pytest.raises(Unfusable, match="10000"):
            runnable.compile(CPU)
    runnable.compile(GPU)
    assert runnable.is_compiled


def test_gradients_are_compiled_for_the_device(wide):
    with pytest.raises(Unfusable):
        wide.training((0,), CPU)
    trained = wide.training((0,), GPU)
    assert trained.ready == {"cuda"}
    assert wide.training((0,), GPU) is trained
    with pytest.raises(Unfusable):
        wide.training((0,), CPU)


STEP_ON_A_CPU = """
import sys, torch
import tiga as tg

class Difference(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x)

graph = tg.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([1, 2]), num_src=3, num_dst=3)
x = torch.randn(3, 4, requires_grad=True)
Difference()(graph=graph, ndata={"x": x}).sum().backward()
print([name for name in sys.modules if name.startswith(("triton", "tiga.backends.triton"))])
"""


def test_a_step_on_a_cpu_loads_nothing_of_gpus():
    done = subprocess.run(
        [sys.executable, "-c", STEP_ON_A_CPU], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
