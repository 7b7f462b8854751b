"""The `gf` dialect: one op per class of the registry, verified by the class's own inference."""

import dataclasses
from functools import cache, lru_cache
from typing import Any, get_type_hints

from torch_mlir import ir

from tiga.ir.dialects import STRING, Dialect, OpSpec
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


@cache
def fields_of(op_class: Any) -> Fields:
    """The fields of an op class, by their annotations."""
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


def _infer(operation: ir.Operation) -> Type:
    op_class = REGISTRY[operation.name.removeprefix(PREFIX)]
    relations = relations_of(operation) if fields_of(op_class).names_relation else {}
    op = decode_op(operation, relations)
    return op.infer(*(decode_type(value.type) for value in operation.operands))


def _mixes_one_and_all(operation: ir.Operation) -> bool:
    types = [value.type for value in (*operation.operands, *operation.results)]
    return len({is_one(type) for type in types if type.encoding is not None}) > 1


def check(operation: ir.Operation) -> str | None:
    """What is wrong with a `gf` operation by its op's inference, or None."""
    if _mixes_one_and_all(operation):
        return "operands and result are all of one entity, or all of whole spaces"
    try:
        expected, got = _infer(operation), decode_type(operation.results[0].type)
    except Exception as error:  # inference raises what it likes: assertions, numpy's errors
        return str(error) or f"{type(error).__name__} in inference"
    return None if expected == got else f"expected result {expected}, got {got}"


def _spec(name: str, op_class: type[Op]) -> OpSpec:
    attributes = {field: kind.constraint for field, kind in fields_of(op_class).kinds.items()}
    return OpSpec(name, op_class.arity, 1, attributes, traits=("pure",), check=check)


RELATION = OpSpec("relation", 0, 0, {"sym_name": STRING, "src": STRING, "dst": STRING})


@lru_cache(maxsize=8)
def _dialect(classes: tuple[tuple[str, type[Op]], ...]) -> Dialect:
    return Dialect("gf", (RELATION, *(_spec(*item) for item in classes if item[0] != INPUT)))


def gf() -> Dialect:
    """The dialect of all ops registered by now."""
    return _dialect(tuple(REGISTRY.items()))
