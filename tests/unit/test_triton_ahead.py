"""Kernels compiled side by side, ahead of their first launch; no GPU is needed to compile."""

from dataclasses import replace

import pytest

from tests.gpu import programs
from tiga.backends.triton.ahead import compile_ahead
from tiga.backends.triton.compiled import compile_kernel, is_interpreted
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.loaded import Kernel, hidden_parameters
from tiga.errors import UnsupportedByBackend
from tiga.types import float32

CAPABILITY = 90
pytestmark = pytest.mark.skipif(is_interpreted(), reason="Triton interprets kernels")


def sources():
    return list(compile_program(programs.MAKERS["total"](float32).program).sources())


def alignment(source):
    return tuple(p.type.startswith("*") for p in source.parameters)


def renamed(source, name):
    text = source.text.replace(f"def {source.name}(", f"def {name}(")
    return replace(source, name=name, text=text)


def test_kernels_are_compiled_before_they_are_loaded():
    kernels = [Kernel(source) for source in sources()]
    wanted = [(kernel, alignment(kernel.source)) for kernel in kernels]
    assert not any(kernel.is_compiled(CAPABILITY, aligned) for kernel, aligned in wanted)
    compile_ahead(wanted, CAPABILITY)
    for kernel, aligned in wanted:
        assert kernel.is_compiled(CAPABILITY, aligned)
        assert not kernel.is_compiled(CAPABILITY, tuple(not a for a in aligned))
        alone = compile_kernel(kernel.source, CAPABILITY, aligned)
        assert kernel.compiled[CAPABILITY, aligned].asm["ptx"] == alone.asm["ptx"]


def test_kernels_of_one_text_are_compiled_once():
    source = sources()[0]
    kernels = [Kernel(renamed(source, name)) for name in ("first", "second")]
    aligned = alignment(source)
    compile_ahead([(kernel, aligned) for kernel in kernels], CAPABILITY)
    one, other = (kernel.compiled[CAPABILITY, aligned] for kernel in kernels)
    assert one is other
    assert hidden_parameters(one, kernels[0].source) == hidden_parameters(one, kernels[1].source)


def test_kernels_of_one_text_in_several_programs_are_compiled_once():
    source = sources()[0]
    aligned = alignment(source)
    one = compile_kernel(source, CAPABILITY, aligned)
    assert compile_kernel(renamed(source, "another"), CAPABILITY, list(aligned)) is one
    assert one.metadata.name == source.name
    other = compile_kernel(source, CAPABILITY, tuple(not a for a in aligned))
    assert other is not one


def test_what_cannot_be_compiled_says_so():
    source = sources()[0]
    broken = replace(source, text=f"@triton.jit\ndef {source.name}(num_items):\n    nothing\n")
    broken = replace(broken, parameters=source.parameters[:1])
    with pytest.raises(Exception, match="nothing") as found:
        compile_ahead([(Kernel(broken), (False,))], CAPABILITY)
    assert not isinstance(found.value, UnsupportedByBackend)
