"""Kernels without a GPU: interpreted for numbers, compiled to PTX, and their text."""

import re

import pytest

from tests.golden.stored import require_stored
from tests.gpu import harness, programs
from tests.interpreted import run_interpreted
from tiga.backends.triton.arithmetic import Term, TritonArithmetic
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.layout import Tile, box_map, padded
from tiga.errors import Unfusable
from tiga.ops.align import expand_to
from tiga.ops.contract import contract
from tiga.ops.functions import exp
from tiga.ops.leaf import Input, constant
from tiga.ops.message import degree, gather, sum_to
from tiga.ops.pointwise import gt, mul, sub, where
from tiga.reducers import Max, Messages
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, float64

SHOWN = ("softmax", "weighted_sum", "weighted_numbers", "edge_network", "total")


def test_the_interpreter_agrees_with_the_oracle():
    sample = (
        "test_programs and split and float32 and (softmax or numbers or registers or total)"
        " or test_attention or test_outputs_of or test_second and Max"
    )
    run_interpreted("tests/gpu", "-k", sample)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", SHOWN)
def test_kernels_compile_without_a_gpu(name, capability):
    executable = compile_program(programs.MAKERS[name](float32).program)
    for source in executable.sources():
        aligned = [p.type.startswith("*") for p in source.parameters]
        ptx = compile_kernel(source, capability, aligned).asm["ptx"]
        assert f".target sm_{capability}" in ptx
        assert f".entry {source.name}" in ptx


def test_kernels_keep_within_the_shared_memory_of_a_gpu():
    """Matrices take much of it; what is left decides how far ahead loads start."""
    executable = compile_program(programs.MAKERS["edge_network_large"](float32).program)
    source = next(executable.sources(has_chunks=False))
    aligned = [p.type.startswith("*") for p in source.parameters]
    stages = {c: compile_kernel(source, c, aligned).metadata for c in (86, 90)}
    assert stages[86].shared <= 99 * 1024 < stages[90].shared <= 227 * 1024
    assert stages[86].num_stages < stages[90].num_stages


def test_products_and_sums_are_not_fused():
    """A message that is computed again in another walk must have the same bits."""
    executable = compile_program(programs.weighted_sum(float32, (64,)).program)
    for source in executable.sources():
        aligned = [p.type.startswith("*") for p in source.parameters]
        ptx = compile_kernel(source, 90, aligned).asm["ptx"]
        assert not re.search(r"\bfma\.rn\.f32\b", ptx)


@pytest.mark.parametrize("name", SHOWN)
def test_text_of_kernels(name):
    code = compile_program(programs.MAKERS[name](float32).program).code()
    require_stored(f"triton/{name}.py.txt", code)


def test_values_too_wide_for_registers_are_refused():
    case = programs.softmax(float32, (140000,))
    with pytest.raises(Unfusable, match="262144 elements"):
        compile_program(case.program)


def test_the_shift_of_a_softmax_reads_nothing_edge_after_edge():
    """What it takes beside the running maximum, here the number of edges, is known before."""
    relation, dst = harness.RELATION, harness.DST
    x = Input("x", Type(float32, (3,), harness.SRC))()
    score = gather(relation, "src", x)
    count = expand_to(degree(relation, "dst", float32), (3,), dst)
    zero = constant(0, Type(float32, (3,), dst))
    shift = where(gt(count, zero), Max().rows(Messages(relation, (score,))), zero)
    total = sum_to(relation, "dst", exp(sub(score, gather(relation, "dst", shift))))
    (text,) = (s.text for s in compile_program(Program((x,), (total,))).sources(has_chunks=False))
    before, loop = text.split("for start in")
    assert "row_ptr_dst" in before
    assert "row_ptr_dst" not in loop


def test_double_constants_keep_their_bits():
    arithmetic = TritonArithmetic()
    x = Term("x", float64)
    assert arithmetic.constant(0.1, x).text == "tl.full((), 0.1, tl.float64)"
    assert arithmetic.mul(
        Term("y", float32), arithmetic.constant(0.5, Term("y", float32))
    ).text == ("(y * 0.5)")


def test_padding():
    assert [padded(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
    assert Tile(1, 1, 1, whole=200, window=128).windows == 2


def test_box_maps():
    import numpy as np

    lanes = np.arange(12).reshape(3, 4)
    assert box_map(lanes.T).strides == (1, 4)
    assert box_map(np.array([-1, 5, 7, -1])) == box_map(np.array([-1, 5, 7, -1]))
    placed = box_map(np.array([-1, 5, 7, -1]))
    assert (placed.base, placed.strides, placed.low, placed.high) == (3, (2,), (1,), (3,))
    assert box_map(np.array([0, 2, 1])) is None
    assert box_map(np.array([0, -1, 2])) is None


def test_large_matrices_are_not_held_without_matrix_units():
    """In float64 a matrix of 100 x 128 would fill the registers of a program."""
    executable = compile_program(programs.MAKERS["edge_network_large"](float64).program)
    source = next(executable.sources(has_chunks=False))
    assert "matrix = tl.load(first + k * 128 + tl.arange(0, 128)[None, :]" in source.text
    assert "tl.arange(0, 128)[:, None] * 128" not in source.text


def _gradient_code(program) -> str:
    full = training(program, (0,), harness.RULES)
    return compile_program(gradient(full, (0,), (0,), harness.RULES).program).code()


def test_only_what_wins_is_read_unless_products_decide_it():
    """Triton starts loads beside products ahead, and none can be that waits for a product."""
    x = Input("x", Type(float32, (16,), harness.SRC))()
    w = Input("w", Type(float32, (16, 16), GLOBAL))()
    y = Input("y", Type(float32, (16,), harness.RELATION.edge))()
    sent = gather(harness.RELATION, "src", x)
    for message, picked in ((sent, True), (contract(mul(sent, y), w), False)):
        rows = Max().rows(Messages(harness.RELATION, (message,)))
        inputs = (x,) if picked else (x, y, w)
        code = _gradient_code(Program(inputs, (rows,)))
        assert ("& (is_max" in code) == picked
