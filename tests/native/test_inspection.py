"""What a kernel tells about its programs after calls on native tensors, with or without torch."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidValue


class Scaled(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * 2.0


class Ranked(tg.MessagePassing):
    """Sorts messages, which no walk does."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.sort(src.x, axis=-1)


def graph() -> tg.Graph:
    return tg.Graph.from_coo([0, 1], [1, 1])


@pytest.fixture
def kernel() -> Scaled:
    made = Scaled()
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    out = made(graph=graph(), ndata={"x": x})
    loss = (out * out).sum()
    assert tg.autograd.grad(loss, x).tolist() == [24.0, 24.0]
    return made


def test_programs_and_their_derivatives(kernel: Scaled) -> None:
    told = kernel.explain()
    assert told.startswith("Scaled: 1 program(s)\nprogram 0, forward:")
    assert "program 0, gradient: forward:" in told
    assert "reads field:ndata.x" in told
    assert len(kernel.schedules) == 2
    assert not kernel.diagnostics


def test_texts_of_every_level(kernel: Scaled) -> None:
    assert '"gf.gather"' in kernel.ir()
    for level in ("iter", "kernel", "llvm"):
        assert kernel.ir(level).count("// program 0, ") == 2
    assert "define void @" in kernel.code()
    with pytest.raises(InvalidValue, match=r"llvm, triton, ttir, ptx; got 'sass'"):
        kernel.code("sass")


def test_code_for_a_gpu_that_is_not_there(kernel: Scaled) -> None:
    pytest.importorskip("triton")
    assert "@triton.jit\ndef step0_" in kernel.code("triton")


def test_calls_that_found_their_program(kernel: Scaled) -> None:
    kernel(graph=graph(), ndata={"x": tg.tensor([3.0, 4.0])}).realize()
    kernel(graph=graph(), ndata={"x": tg.ones((2, 3))}).realize()
    assert kernel.cache_info[:3] == (1, 2, 2)


def test_a_call_that_is_not_made() -> None:
    kernel = Scaled()
    told = kernel.explain(graph=graph(), ndata={"x": tg.ones(2)})
    assert "fuses mul" in told
    assert kernel.cache_info.misses == 1


def test_what_is_not_fused() -> None:
    kernel, x = Ranked(), tg.tensor(np.float32([[2.0, 1.0], [4.0, 3.0]]))
    assert "a call would not be fused: " in kernel.explain(graph=graph(), ndata={"x": x})
    assert kernel(graph=graph(), ndata={"x": x}).tolist() == [[0.0, 0.0], [4.0, 6.0]]
    assert "not fused: " in kernel.explain()
    (found,) = kernel.diagnostics
    assert found.disposition == "rejected"
    assert "test_inspection.py" in found.message


def test_copies_start_afresh(kernel: Scaled) -> None:
    for made in (copy.copy(kernel), copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert made.cache_info.variants == 0
