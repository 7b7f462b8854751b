"""Whole-tensor programs as text."""

from tiga.errors import InvalidValue
from tiga.ir.context import make_context, parse, text_of, verify
from tiga.passes.read import functions
from tiga.passes.tensor_dialect import TensorProgram, emit_tensors, gf_tensor, read_tensors
from tiga.trace.program import Program


def program_text(program: Program, *, verify: bool = False, name: str = "program") -> str:
    """The canonical `gf_tensor` module of a program.

    Args:
        verify: also run MLIR's verifier, parse the text again and compare the programs.

    Raises:
        InvalidValue: the module does not verify.
    """
    context = make_context((gf_tensor(),))
    module = emit_tensors({name: program}, context)
    text = text_of(module, locations=False)
    if verify:
        _check(program, name, text)
    return text


def _check(program: Program, name: str, text: str) -> None:
    module = parse(text, make_context((gf_tensor(),)), name)
    verify(module, name)
    again = read_tensors(dict(functions(module)))[name]
    if TensorProgram(program.inputs, program.outputs) != again:
        raise InvalidValue(f"{name}: the program changes when it is printed and parsed")
