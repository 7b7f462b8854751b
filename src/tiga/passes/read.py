"""Read programs back from a module of the `gf` dialect: the inverse of `emit`.

Nodes are built as they are written, without folding, so that a program that is emitted and read
is the same program: its nodes are the same objects.
"""

from collections.abc import Callable, Iterator

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.context import where_of
from tiga.ir.encoding import Relations, decode_type, relations_of
from tiga.ops.leaf import Input
from tiga.passes.domain import PART, PREFIX, decode_op
from tiga.passes.emit import LABEL
from tiga.trace.node import Node, intern
from tiga.trace.program import Program

FUNCTION = "func.func"
RETURN = "func.return"


def place(operation: ir.Operation) -> str:
    """The operation's name and its user's line, for messages."""
    where = where_of(operation.location)
    return operation.name if where is None else f"{operation.name} ({where})"


def functions(module: ir.Module) -> Iterator[tuple[str, ir.OpView]]:
    """The functions of a module with their names."""
    for operation in module.body.operations:
        if operation.operation.name == FUNCTION:
            yield operation.name.value, operation


def read_inputs(function: ir.OpView) -> tuple[Node, ...]:
    """The `Input` nodes of a function's arguments; those without a label are named by position."""
    attributes = function.arg_attrs if "arg_attrs" in function.operation.attributes else ()
    given = [a[LABEL].value if LABEL in a else None for a in attributes]
    labels = given or [None] * len(function.arguments)
    return tuple(
        intern(Input(label or f"arg{i}", of), (), of, where_of(argument.location))
        for i, (label, argument) in enumerate(zip(labels, function.arguments, strict=True))
        for of in (decode_type(argument.type),)
    )


def read_op(
    operation: ir.Operation, value: Callable[[ir.Value], Node], relations: Relations
) -> Node:
    """The node of a `gf` operation on the nodes of its operands; a part is its operand's node."""
    if operation.name == PART:
        return value(operation.operands[0])
    if not operation.name.startswith(PREFIX):
        raise InvalidValue(f"expected an op of the gf dialect, got {place(operation)}")
    op = decode_op(operation, relations)
    inputs = tuple(map(value, operation.operands))
    inferred = op.infer(*(node.type for node in inputs))
    return intern(op, inputs, inferred, where_of(operation.location))


def _read_program(function: ir.OpView, relations: Relations) -> Program:
    inputs = read_inputs(function)
    values = dict(zip(function.arguments, inputs, strict=True))
    for view in function.entry_block.operations:
        operation = view.operation
        if operation.name == RETURN:
            return Program(inputs, tuple(values[value] for value in operation.operands))
        values[operation.result] = read_op(operation, values.__getitem__, relations)
    raise AssertionError("a function ends in return")


def read(module: ir.Module) -> dict[str, Program]:
    """The programs of a verified `gf` module by function name.

    Raises:
        InvalidValue: a function holds an op of another dialect.
    """
    relations = relations_of(module.operation)
    return {name: _read_program(body, relations) for name, body in functions(module)}
