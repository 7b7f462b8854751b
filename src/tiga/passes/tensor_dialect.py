"""The `gf_tensor` dialect: whole-tensor algebra, gradient requests and checkpoints.

Its ops are the ops of the registry that need no relation, as `gf_tensor.<name>`, each verified by
its own inference. Operands of an op that takes any number of them are hidden in parts, as in `gf`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from torch_mlir import ir

from tiga.ir.dialects import Dialect
from tiga.ir.encoding import decode_type
from tiga.ir.module import new_module
from tiga.ops import REGISTRY, Op
from tiga.passes.domain import INPUT, Spelling, decode_op, fields_of, is_encodable, spec_of
from tiga.passes.emit import Writer, write_program
from tiga.passes.read import read_program
from tiga.trace.program import Program

TENSORS = Spelling("gf_tensor.")


@dataclass(frozen=True)
class TensorProgram(Program):
    """A program of whole tensors: the form that the `gf_tensor` dialect says."""


def _belongs(name: str, op_class: type[Op]) -> bool:
    if name == INPUT or not is_encodable(op_class):
        return False
    fields = fields_of(op_class)
    return not fields.names_relation and not fields.regions


def _check(operation: ir.Operation) -> str | None:
    """What is wrong with an operation by its op's inference, or None."""
    types = [decode_type(TENSORS.unwrap(value).type) for value in operation.operands]
    expected = decode_op(operation, {}, TENSORS).infer(*types)
    got = decode_type(operation.results[0].type)
    return None if expected == got else f"expected result {expected}, got {got}"


@lru_cache(maxsize=8)
def _dialect(classes: tuple[tuple[str, type[Op]], ...]) -> Dialect:
    specs = (spec_of(*item, TENSORS, _check) for item in classes if _belongs(*item))
    return Dialect("gf_tensor", (TENSORS.part_spec, *specs), types=("hidden",))


def gf_tensor() -> Dialect:
    """The dialect of all ops registered by now."""
    return _dialect(tuple(REGISTRY.items()))


def emit_tensors(programs: Mapping[str, Program], context: ir.Context) -> ir.Module:
    """The `gf_tensor` module of named programs, not verified yet."""
    with new_module(context) as module:
        for name, program in programs.items():
            write_program(Writer(TENSORS), name, program)
    return module


def is_tensor_function(function: ir.OpView) -> bool:
    """Whether a function's body is of this dialect."""
    names = [view.operation.name for view in function.entry_block.operations]
    return any(name.startswith(TENSORS.prefix) for name in names)


def read_tensors(functions: Mapping[str, ir.OpView]) -> dict[str, TensorProgram]:
    """The programs of verified functions of this dialect.

    Raises:
        InvalidValue: a function holds an op of another dialect.
    """
    return {name: _read(function) for name, function in functions.items()}


def _read(function: ir.OpView) -> TensorProgram:
    program = read_program(function, {}, TENSORS)
    return TensorProgram(program.inputs, program.outputs)
