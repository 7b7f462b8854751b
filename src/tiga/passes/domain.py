"""The `gf` dialect: one op per class of the registry, verified by the class's own inference.

IRDL wants all of a variadic op's operands to be of one type. Those of `gf.concat` need not be, so
each goes through `gf.part`, whose result hides the type:

    %p = "gf.part"(%x) : (tensor<?x4xf32, "src">) -> !gf.hidden
"""

import dataclasses
from functools import cache, lru_cache
from typing import Any, get_type_hints

from torch_mlir import ir

from tiga.ir.dialects import STRING, TENSOR, Dialect, OpSpec
from tiga.ir.encoding import (
    FIELD_KINDS,
    FieldKind,
    Relations,
    decode_type,
    is_one,
    relations_of,
)
from tiga.ops import REGISTRY, Op
from tiga.types import Relation, Type

PREFIX = "gf."
INPUT = "input"
"""The one op that is not an operation: a program's inputs are arguments of its function."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """An op class's fields: those that are attributes, and those that are its result's type."""

    kinds: dict[str, FieldKind]
    types: tuple[str, ...]
    names_relation: bool


def fields_of(op_class: type[Op]) -> Fields:
    """The fields of an op class, by their annotations."""
    key: Any = op_class  # typing sees no hash in a class whose instances define their own
    return _fields_of(key)


@cache
def _fields_of(op_class: type[Op]) -> Fields:
    hints = get_type_hints(op_class)
    used = {field.name: hints[field.name] for field in dataclasses.fields(op_class)}
    return Fields(
        {name: FIELD_KINDS[hint] for name, hint in used.items() if hint is not Type},
        tuple(name for name, hint in used.items() if hint is Type),
        Relation in used.values(),
    )


def decode_op(operation: ir.Operation, relations: Relations) -> Op:
    """The op that a `gf` operation applies.

    Raises:
        ValueError: an attribute holds no value of its field's kind.
    """
    op_class = REGISTRY[operation.name.removeprefix(PREFIX)]
    fields, attributes = fields_of(op_class), operation.attributes
    values = {name: kind.decode(attributes[name], relations) for name, kind in fields.kinds.items()}
    for name in fields.types:
        values[name] = decode_type(operation.results[0].type)
    return op_class(**values)


def unwrap(value: ir.Value) -> ir.Value:
    """What a `gf.part` hides, or the value itself."""
    if str(value.type) != HIDDEN:
        return value
    return value.owner.operation.operands[0]


def _operand_types(operation: ir.Operation) -> list[ir.Type]:
    op_class = REGISTRY[operation.name.removeprefix(PREFIX)]
    if op_class.arity is not None:
        return [value.type for value in operation.operands]
    return [unwrap(value).type for value in operation.operands]


def check(operation: ir.Operation) -> str | None:
    """What is wrong with a `gf` operation by its op's inference, or None."""
    result, operands = operation.results[0].type, _operand_types(operation)
    if len({is_one(type) for type in (result, *operands) if type.encoding is not None}) > 1:
        return "operands and result are all of one entity, or all of whole spaces"
    op_class = REGISTRY[operation.name.removeprefix(PREFIX)]
    relations = relations_of(operation) if fields_of(op_class).names_relation else {}
    expected = decode_op(operation, relations).infer(*map(decode_type, operands))
    got = decode_type(result)
    return None if expected == got else f"expected result {expected}, got {got}"


def _spec(name: str, op_class: type[Op]) -> OpSpec:
    attributes = {field: kind.constraint for field, kind in fields_of(op_class).kinds.items()}
    values = TENSOR if op_class.arity is not None else _HIDDEN_CONSTRAINT
    return OpSpec(
        name, op_class.arity, 1, attributes, values=values, outcome=TENSOR, traits=("pure",),
        check=check,
    )  # fmt: skip


PART = "gf.part"
HIDDEN = "!gf.hidden"
_HIDDEN_CONSTRAINT = "@gf::@hidden"
_PART = OpSpec("part", 1, 1, outcome=_HIDDEN_CONSTRAINT, traits=("pure",))
_RELATION = OpSpec("relation", 0, 0, {"sym_name": STRING, "src": STRING, "dst": STRING})


@lru_cache(maxsize=8)
def _dialect(classes: tuple[tuple[str, type[Op]], ...]) -> Dialect:
    return Dialect(
        "gf",
        (_RELATION, _PART, *(_spec(*item) for item in classes if item[0] != INPUT)),
        types=("hidden",),
    )


def gf() -> Dialect:
    """The dialect of all ops registered by now."""
    return _dialect(tuple(REGISTRY.items()))
