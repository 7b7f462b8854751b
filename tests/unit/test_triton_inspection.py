"""What a kernel tells about its programs on GPUs, on a machine that has none."""

import pytest
import torch

import tiga as tg
from tiga.backends.triton import report
from tiga.errors import InvalidValue
from tiga.frontends.inspection import inspected


@pytest.fixture(scope="module")
def kernel():
    class Difference(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.relu(src.x - dst.x)

    made = Difference()
    made(graph=tg.Graph.from_coo([0, 1, 2], [1, 2, 2]), ndata={"x": torch.randn(3, 16)})
    return made


def test_code_for_gpus_after_a_call_on_the_cpu(kernel):
    assert "@triton.jit\ndef step0_rows(" in kernel.code("triton")
    assert "tt.func public @step0_rows" in kernel.code("ttir")
    assert ".target sm_90" in kernel.code("ptx")
    assert kernel.code() == kernel.code("llvm")


def test_code_for_another_gpu(kernel):
    ((_, part),) = inspected(kernel).parts()
    assert ".target sm_80" in report.text(part.gpu(), "ptx", 80)


def test_code_of_a_kind_that_does_not_exist(kernel):
    with pytest.raises(InvalidValue, match="llvm, triton, ttir, ptx; got 'sass'"):
        kernel.code("sass")


def test_schedules_of_kernels_that_no_graph_needed_yet(kernel):
    ((_, part),) = inspected(kernel).parts()
    first, second = report.schedules(part.gpu())
    assert (first.kernel, first.tile.edges) == ("step0_rows", 8)
    assert "16 elements" in first.why
    assert "split rows" in second.over
    assert kernel.schedules == part.cpu().schedules, "the program ran on the CPU alone"
