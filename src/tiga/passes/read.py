"""Read programs back from a module of the `gf` dialect: the inverse of `emit`.

Nodes are built as they are written, without folding, so that a program that is emitted and read
is the same program: its nodes are the same objects.
"""

from collections.abc import Iterator

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.encoding import RELATION_OP, Relations, relations_of
from tiga.passes.domain import DOMAIN, Spelling, place, read_input, read_op
from tiga.passes.emit import LABEL
from tiga.trace.node import Node
from tiga.trace.program import Program

FUNCTION = "func.func"
RETURN = "func.return"


def functions(module: ir.Module) -> Iterator[tuple[str, ir.OpView]]:
    """The functions of a module with their names.

    Raises:
        InvalidValue: it holds something else than functions and relations.
    """
    for view in module.body.operations:
        if view.operation.name == FUNCTION:
            yield view.name.value, view
        elif view.operation.name != RELATION_OP:
            raise InvalidValue(f"expected functions and relations, got {place(view.operation)}")


def read_inputs(function: ir.OpView) -> tuple[Node, ...]:
    """The `Input` nodes of a function's arguments; those without a label are named by position."""
    attributes = function.arg_attrs if "arg_attrs" in function.operation.attributes else ()
    given = [a[LABEL].value if LABEL in a else None for a in attributes]
    labels = given or [None] * len(function.arguments)
    return tuple(
        read_input(argument, label or f"arg{i}")
        for i, (label, argument) in enumerate(zip(labels, function.arguments, strict=True))
    )


def read_program(function: ir.OpView, relations: Relations, spelling: Spelling = DOMAIN) -> Program:
    """The program of a function of whole arrays.

    Raises:
        InvalidValue: it holds an op of another dialect.
    """
    inputs = read_inputs(function)
    values = dict(zip(function.arguments, inputs, strict=True))
    for view in function.entry_block.operations:
        operation = view.operation
        if operation.name == RETURN:
            return Program(inputs, tuple(values[value] for value in operation.operands))
        values[operation.result] = read_op(operation, values.__getitem__, relations, spelling)
    raise AssertionError("a function ends in return")


def read(module: ir.Module) -> dict[str, Program]:
    """The programs of a verified `gf` module by function name.

    Raises:
        InvalidValue: a function holds an op of another dialect.
    """
    relations = relations_of(module.operation)
    return {name: read_program(body, relations) for name, body in functions(module)}
