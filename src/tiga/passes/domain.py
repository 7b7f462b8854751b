"""The `gf` dialect: one op per class of the registry, verified by the class's own inference.

IRDL wants all of a variadic op's operands to be of one type. Those of `gf.concat` need not be, so
each goes through `gf.part`, whose result hides the type:

    %p = "gf.part"(%x) : (tensor<?x4xf32, "src">) -> !gf.hidden

A field that is a program becomes a region on global values, and an attribute with the labels of
its inputs:

    %s = "gf.scan_after"(%p, %q) ({
    ^bb0(%carry: tensor<4xf32>, %x: tensor<4xf32>):
      %0 = "gf.mul"(%carry, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %r = "gf.part"(%0) : (tensor<4xf32>) -> !gf.hidden
      "gf.yield"(%r) : (!gf.hidden) -> ()
    }) {step = ["carry", "x"], relation = @edges, side = "dst", reverse = false} : ...
"""

import dataclasses
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, get_type_hints

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.context import where_of
from tiga.ir.dialects import ARRAY, STRING, TENSOR, Check, Dialect, OpSpec
from tiga.ir.encoding import (
    FIELD_KINDS,
    FieldKind,
    Relations,
    decode_texts,
    decode_type,
    is_one,
    relations_of,
)
from tiga.ops import REGISTRY, Op
from tiga.ops.leaf import Input
from tiga.trace.node import Node, intern
from tiga.trace.program import Program
from tiga.types import Relation, Type


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How a dialect spells the ops of the registry, and what hides the types of operands."""

    prefix: str

    @property
    def part(self) -> str:
        return f"{self.prefix}part"

    @property
    def hidden(self) -> str:
        return f"!{self.prefix}hidden"

    @property
    def constraint(self) -> str:
        """What holds of hidden operands."""
        return f"@{self.prefix.rstrip('.')}::@hidden"

    @property
    def part_spec(self) -> OpSpec:
        return OpSpec("part", 1, 1, outcome=self.constraint, traits=("pure",))

    def class_of(self, operation: ir.Operation) -> type[Op]:
        """The op class of an operation of the dialect.

        Raises:
            InvalidValue: the operation is of another dialect.
        """
        if not operation.name.startswith(self.prefix):
            dialect = self.prefix.rstrip(".")
            raise InvalidValue(f"expected an op of the {dialect} dialect, got {place(operation)}")
        return REGISTRY[operation.name.removeprefix(self.prefix)]

    def unwrap(self, value: ir.Value) -> ir.Value:
        """What a part hides, or the value itself."""
        return value.owner.operation.operands[0] if str(value.type) == self.hidden else value


DOMAIN = Spelling("gf.")
INPUT = "input"
"""The one op that is not an operation: a program's inputs are arguments of its function."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """An op class's fields: those that are attributes, its result's type, or its regions."""

    kinds: dict[str, FieldKind]
    types: tuple[str, ...]
    regions: tuple[str, ...]
    names_relation: bool

    @property
    def constraints(self) -> dict[str, str]:
        """The constraints of the op's attributes; a region's one has the labels of its inputs."""
        declared = {name: kind.constraint for name, kind in self.kinds.items()}
        return declared | dict.fromkeys(self.regions, ARRAY)


def fields_of(op_class: type[Op]) -> Fields:
    """The fields of an op class, by their annotations.

    Raises:
        InvalidValue: there is no encoding for one of them.
    """
    key: Any = op_class  # typing sees no hash in a class whose instances define their own
    return _fields_of(key)


@cache
def _fields_of(op_class: type[Op]) -> Fields:
    hints = get_type_hints(op_class)
    used = {field.name: hints[field.name] for field in dataclasses.fields(op_class)}
    others = {name: hint for name, hint in used.items() if hint not in (Type, Program)}
    for name, hint in others.items():
        if hint not in FIELD_KINDS:
            known = ", ".join(getattr(kind, "__name__", str(kind)) for kind in FIELD_KINDS)
            raise InvalidValue(
                f"gf.{op_class.name}: expected fields of {known}; got {name!r} of {hint}"
            )
    return Fields(
        {name: FIELD_KINDS[hint] for name, hint in others.items()},
        tuple(name for name, hint in used.items() if hint is Type),
        tuple(name for name, hint in used.items() if hint is Program),
        Relation in used.values(),
    )


def is_encodable(op_class: type[Op]) -> bool:
    """Whether the dialect has the op: there is an encoding for each of its fields."""
    try:
        fields_of(op_class)
    except InvalidValue:
        return False
    return True


def decode_op(operation: ir.Operation, relations: Relations, spelling: Spelling = DOMAIN) -> Op:
    """The op that an operation applies.

    Raises:
        ValueError: an attribute holds no value of its field's kind, or a region is no program.
    """
    op_class = spelling.class_of(operation)
    fields, attributes = fields_of(op_class), operation.attributes
    values = {name: kind.decode(attributes[name], relations) for name, kind in fields.kinds.items()}
    for name in fields.types:
        values[name] = decode_type(operation.results[0].type)
    for name, region in zip(fields.regions, operation.regions, strict=True):
        values[name] = _read_region(region, decode_texts(attributes[name]), relations)
    return op_class(**values)


def place(operation: ir.Operation) -> str:
    """The operation's name and its user's line, for messages."""
    where = where_of(operation.location)
    return operation.name if where is None else f"{operation.name} ({where})"


def read_op(
    operation: ir.Operation,
    value: Callable[[ir.Value], Node],
    relations: Relations,
    spelling: Spelling = DOMAIN,
) -> Node:
    """The node of an operation on the nodes of its operands; a part is its operand's node.

    Raises:
        InvalidValue: the operation is of another dialect.
    """
    if operation.name == spelling.part:
        return value(operation.operands[0])
    op = decode_op(operation, relations, spelling)
    inputs = tuple(map(value, operation.operands))
    inferred = op.infer(*(node.type for node in inputs))
    return intern(op, inputs, inferred, where_of(operation.location))


def read_input(value: ir.Value, label: str) -> Node:
    """The `Input` node of an argument of a function or a region."""
    of = decode_type(value.type)
    return intern(Input(label, of), (), of, where_of(value.location))


def _read_region(region: ir.Region, labels: tuple[str, ...], relations: Relations) -> Program:
    (block,) = region.blocks
    inputs = tuple(map(read_input, block.arguments, labels))
    if len(inputs) != len(block.arguments) or len(labels) != len(inputs):
        raise ValueError(f"{len(labels)} labels for {len(block.arguments)} inputs of a region")
    values = dict(zip(block.arguments, inputs, strict=True))

    def known(value: ir.Value) -> Node:
        if value not in values:
            raise ValueError("its region uses a value from outside")
        return values[value]

    *steps, last = (view.operation for view in block.operations)
    if last.name != YIELD:
        raise ValueError(f"expected a region to end in {YIELD}, got {last.name}")
    for operation in steps:
        values[operation.result] = read_op(operation, known, relations)
    return Program(inputs, tuple(map(known, last.operands)))


def check(operation: ir.Operation) -> str | None:
    """What is wrong with a `gf` operation by its op's inference, or None."""
    result = operation.results[0].type
    operands = [DOMAIN.unwrap(value).type for value in operation.operands]
    if len({is_one(type) for type in (result, *operands) if type.encoding is not None}) > 1:
        return "operands and result are all of one entity, or all of whole spaces"
    fields = fields_of(DOMAIN.class_of(operation))
    relations = relations_of(operation) if fields.names_relation else {}
    expected = decode_op(operation, relations).infer(*map(decode_type, operands))
    got = decode_type(result)
    return None if expected == got else f"expected result {expected}, got {got}"


def spec_of(name: str, op_class: type[Op], spelling: Spelling, check: Check) -> OpSpec:
    """The operation of an op class in a dialect."""
    fields = fields_of(op_class)
    values = TENSOR if op_class.arity is not None else spelling.constraint
    traits = ("pure", "isolated") if fields.regions else ("pure",)
    return OpSpec(
        name, op_class.arity, 1, fields.constraints, fields.regions, values, TENSOR, traits, check
    )


YIELD = "gf.yield"
_YIELD = OpSpec("yield", None, 0, values=DOMAIN.constraint, traits=("terminator",))
_RELATION = OpSpec("relation", 0, 0, {"sym_name": STRING, "src": STRING, "dst": STRING})


@lru_cache(maxsize=8)
def _dialect(classes: tuple[tuple[str, type[Op]], ...]) -> Dialect:
    known = (item for item in classes if item[0] != INPUT and is_encodable(item[1]))
    specs = (spec_of(name, op, DOMAIN, check) for name, op in known)
    return Dialect("gf", (_RELATION, DOMAIN.part_spec, _YIELD, *specs), types=("hidden",))


def gf() -> Dialect:
    """The dialect of all ops registered by now whose fields have an encoding."""
    return _dialect(tuple(REGISTRY.items()))
