"""Kernels of folds in edge order without a GPU: interpreted, compiled to PTX, and their text."""

import pytest

from tests.golden.stored import require_stored
from tests.gpu import harness
from tests.gpu.test_scans import CASES, case
from tests.interpreted import run_interpreted
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.executable import Executable, compile_program
from tiga.trace.derivatives import gradient, training
from tiga.types import float32


def walks(name, shape) -> tuple[Executable, Executable]:
    """The forward and the backward pass."""
    made = case(name, shape, float32)
    full = training(made.program, made.wanted, harness.RULES)
    back = gradient(full, made.wanted, [0], harness.RULES)
    return compile_program(full), compile_program(back.program)


def test_the_interpreter_agrees_with_the_oracle():
    sample = "(masked and short and decay and not 70) or (affine and all and middle) or two_deriv"
    files = [f"tests/gpu/{name}.py" for name in ("test_scans", "test_own_reducers")]
    run_interpreted(*files, "-k", sample)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("name", "shape"), CASES, ids=repr)
def test_kernels_compile_without_a_gpu(name, shape, capability):
    for executable in walks(name, shape):
        for source in executable.sources():
            aligned = [p.type.startswith("*") for p in source.parameters]
            ptx = compile_kernel(source, capability, aligned).asm["ptx"]
            assert f".entry {source.name}" in ptx


def test_carries_are_made_again_block_by_block():
    """Threads read carries that others have stored: they wait for one another in between."""
    forward, back = walks("decay", (3,))
    assert "debug_barrier" not in forward.code()
    marked, kept, read, _ = back.code().split("tl.debug_barrier()")
    assert "tl.store(mark_scan_before" in marked
    assert "tl.load(mark_scan_before" in kept
    assert "tl.store(kept_scan_before" in kept
    assert "tl.load(kept_scan_before" in read


def test_long_rows_of_a_reducer_that_joins_are_split():
    (forward, back), (whole, _) = walks("affine", ()), walks("decay", ())
    names = [source.name for source in forward.sources()]
    assert names == ["step0_rows", "step0_scans0_0", "step0_joins0_0", "step0_combine0"]
    assert [s.name for s in whole.sources()] == ["step0_rows"]
    joins = [s.name for s in back.sources() if "joins" in s.name]
    assert joins == ["step0_joins0_0", "step0_joins1_0"]


def test_text_of_kernels():
    code = "\n\n".join(executable.code() for executable in walks("decay", (3,)))
    code += "\n\n" + walks("affine", ())[0].code()
    require_stored("triton/scans.py.txt", code)
