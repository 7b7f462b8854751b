"""The `gf_tensor` dialect: whole-tensor algebra, gradient requests and checkpoints.

Its ops are the ops of the registry that need no relation, as `gf_tensor.<name>`, each verified by
its own inference. Operands of an op that takes any number of them are hidden in parts, as in `gf`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from torch_mlir import ir
from torch_mlir.dialects import func

from tiga.errors import InvalidValue
from tiga.ir.context import location, where_of
from tiga.ir.dialects import TENSOR, Dialect, OpSpec
from tiga.ir.encoding import decode_type, encode_type
from tiga.ir.module import new_module
from tiga.ops import REGISTRY, Op
from tiga.passes.domain import fields_of, is_encodable, read_input
from tiga.passes.emit import LABEL
from tiga.trace.node import Node, intern
from tiga.trace.program import Program

PREFIX = "gf_tensor."
PART = "gf_tensor.part"
HIDDEN = "!gf_tensor.hidden"
_HIDDEN_CONSTRAINT = "@gf_tensor::@hidden"


@dataclass(frozen=True)
class TensorProgram(Program):
    """A program of whole tensors: the form that the `gf_tensor` dialect says."""


def _belongs(name: str, op_class: type[Op]) -> bool:
    if name == "input" or not is_encodable(op_class):
        return False
    fields = fields_of(op_class)
    return not fields.names_relation and not fields.regions


def _class_of(operation: ir.Operation) -> type[Op]:
    return REGISTRY[operation.name.removeprefix(PREFIX)]


def _unhidden(value: ir.Value) -> ir.Value:
    return value.owner.operation.operands[0] if str(value.type) == HIDDEN else value


def _decode(operation: ir.Operation) -> Op:
    op_class = _class_of(operation)
    fields, attributes = fields_of(op_class), operation.attributes
    values = {name: kind.decode(attributes[name], {}) for name, kind in fields.kinds.items()}
    for name in fields.types:
        values[name] = decode_type(operation.results[0].type)
    return op_class(**values)


def _check(operation: ir.Operation) -> str | None:
    """What is wrong with an operation by its op's inference, or None."""
    types = [decode_type(_unhidden(value).type) for value in operation.operands]
    expected, got = _decode(operation).infer(*types), decode_type(operation.results[0].type)
    return None if expected == got else f"expected result {expected}, got {got}"


def _spec(name: str, op_class: type[Op]) -> OpSpec:
    values = TENSOR if op_class.arity is not None else _HIDDEN_CONSTRAINT
    constraints = fields_of(op_class).constraints
    return OpSpec(name, op_class.arity, 1, constraints, (), values, TENSOR, ("pure",), _check)


_PART = OpSpec("part", 1, 1, outcome=_HIDDEN_CONSTRAINT, traits=("pure",))


@lru_cache(maxsize=8)
def _dialect(classes: tuple[tuple[str, type[Op]], ...]) -> Dialect:
    specs = (_spec(*item) for item in classes if _belongs(*item))
    return Dialect("gf_tensor", (_PART, *specs), types=("hidden",))


def gf_tensor() -> Dialect:
    """The dialect of all ops registered by now."""
    return _dialect(tuple(REGISTRY.items()))


def emit_tensors(programs: Mapping[str, Program], context: ir.Context) -> ir.Module:
    """The `gf_tensor` module of named programs, not verified yet."""
    with new_module(context) as module:
        for name, program in programs.items():
            _write(name, program)
    return module


def _write(name: str, program: Program) -> None:
    types = [[encode_type(node.type) for node in nodes]
             for nodes in (program.inputs, program.outputs)]  # fmt: skip
    function = func.FuncOp(name, ir.FunctionType.get(*types))
    function.add_entry_block([location(node.where) for node in program.inputs])
    labels = ({LABEL: ir.StringAttr.get(node.op.label)} for node in program.inputs)
    function.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(label) for label in labels])
    values: dict[Node, ir.Value] = dict(zip(program.inputs, function.arguments, strict=True))
    with ir.InsertionPoint(function.entry_block):
        for node in program.order[len(program.inputs) :]:
            values[node] = _write_op(node, [values[child] for child in node.inputs])
        func.ReturnOp([values[output] for output in program.outputs])


def _write_op(node: Node, operands: list[ir.Value]) -> ir.Value:
    if node.op.arity is None:
        hidden = ir.Type.parse(HIDDEN)
        operands = [
            ir.Operation.create(PART, results=[hidden], operands=[v]).result for v in operands
        ]
    kinds = fields_of(type(node.op)).kinds
    return ir.Operation.create(
        PREFIX + node.op.name,
        results=[encode_type(node.type)],
        operands=operands,
        attributes={name: kind.encode(getattr(node.op, name)) for name, kind in kinds.items()},
        loc=location(node.where),
    ).result


def is_tensor_function(function: ir.OpView) -> bool:
    """Whether a function's body is of this dialect."""
    names = [view.operation.name for view in function.entry_block.operations]
    return any(name.startswith(PREFIX) for name in names)


def read_tensors(functions: Mapping[str, ir.OpView]) -> dict[str, TensorProgram]:
    """The programs of verified functions of this dialect.

    Raises:
        InvalidValue: a function holds an op of another dialect.
    """
    return {name: _read(function) for name, function in functions.items()}


def _read(function: ir.OpView) -> TensorProgram:
    attributes = function.arg_attrs if "arg_attrs" in function.operation.attributes else ()
    given = [a[LABEL].value if LABEL in a else None for a in attributes]
    labels = given or [None] * len(function.arguments)
    inputs = tuple(
        read_input(argument, label or f"arg{i}")
        for i, (argument, label) in enumerate(zip(function.arguments, labels, strict=True))
    )
    values = dict(zip(function.arguments, inputs, strict=True))
    for view in function.entry_block.operations:
        operation = view.operation
        if operation.name == "func.return":
            return TensorProgram(inputs, tuple(values[value] for value in operation.operands))
        values[operation.result] = _read_op(operation, values.__getitem__)
    raise AssertionError("a function ends in return")


def _read_op(operation: ir.Operation, value: Callable[[ir.Value], Node]) -> Node:
    if operation.name == PART:
        return value(operation.operands[0])
    if not operation.name.startswith(PREFIX):
        raise InvalidValue(f"expected an op of the gf_tensor dialect, got {operation.name}")
    op = _decode(operation)
    inputs = tuple(map(value, operation.operands))
    return intern(op, inputs, op.infer(*(n.type for n in inputs)), where_of(operation.location))
