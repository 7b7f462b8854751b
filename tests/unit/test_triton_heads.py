"""Walks whose heads are told apart: how they are cut, and what is on its way in their loops."""

from dataclasses import replace

import pytest

from tests.gpu import harness, programs
from tests.gpu.test_heads import products
from tests.interpreted import run_interpreted
from tiga.backends.triton.choice import choose
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.heads import heads, may_slice
from tiga.backends.triton.topology import Degrees
from tiga.trace.derivatives import gradient, training
from tiga.types import float32

NEAR, FAR = Degrees(16, 16, far=1 << 12), Degrees(16, 16, far=1 << 18)


def walks(shape=(4, 16)):
    """The walks of attention: forward, and backward to both ends."""
    program = products(shape)
    wanted = [0, 1, 2]
    full = training(program, wanted, harness.RULES)
    back = gradient(full, wanted, [0], harness.RULES)
    made = compile_program(full), compile_program(back.program)
    return [s for m in made for s in m.steps if s.program.relation is not None]


def test_the_interpreter_agrees_with_the_oracle():
    run_interpreted("tests/gpu/test_heads.py", "-k", "queries or vector or ahead")


def test_loops_that_gather_several_wide_values_are_steps_ahead():
    assert [choose(walk.program, NEAR).ahead for walk in walks()] == [3, 3, 3]
    (single,) = compile_program(programs.weighted_sum(float32, (64,)).program).steps
    assert choose(single.program, NEAR).ahead == 0


def test_walks_are_cut_where_halves_of_what_they_gather_fit_the_cache():
    assert [choose(walk.program, NEAR).slices for walk in walks()] == [1, 1, 1]
    assert [choose(walk.program, FAR).slices for walk in walks()] == [2, 2, 2]
    near, far = (choose(walks()[0].program, degrees).rows for degrees in (NEAR, FAR))
    assert far == 2 * near
    huge = replace(FAR, far=1 << 24)
    assert [choose(walk.program, huge).slices for walk in walks()] == [1, 1, 1]


def test_heads_are_told_apart():
    assert [heads(walk.program) for walk in walks((6, 4))] == [6, 6, 6]
    assert [n for n in range(2, 7) if may_slice(walks((6, 4))[0].program, n)] == [2, 3, 6]
    (walk,) = (s for s in compile_program(programs.softmax(float32, (6,)).program).steps
               if s.program.relation is not None)  # fmt: skip
    assert heads(walk.program) == 1


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_without_a_gpu(capability):
    for walk in walks():
        shape = walk.typical()
        tile = replace(choose(walk.program, FAR), slices=2)
        for _, source in walk.sources(replace(shape, tile=tile)):
            aligned = [p.type.startswith("*") for p in source.parameters]
            made = compile_kernel(source, capability, aligned)
            assert f".entry {source.name}" in made.asm["ptx"]
            assert "cp.async" in made.asm["ptx"] or "combine" in source.name
