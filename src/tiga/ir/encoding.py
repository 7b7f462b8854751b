"""How types, spaces, relations and op fields look in MLIR, both ways.

A value of every entity of a space is a tensor with a leading run-time extent, and the space as
its encoding: a string for a node set, a symbol (the relation's) for edges. A value of one entity
lacks the leading extent; a global value lacks the encoding.

    tensor<?x64xf32, "src">      f32[64] of every node of `src`
    tensor<?x64xf32, @edges>     f32[64] of every edge of `edges`
    tensor<64xf32, "src">        f32[64] of one node, inside a walk
    tensor<64x64xf32>            a global f32[64, 64]
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.dialects import ANY, ARRAY, BOOLEAN, INTEGER, INTEGERS, NUMBER, STRING, SYMBOL, TYPE
from tiga.types import GLOBAL, DType, Relation, Space, Type, dtype_of_mlir

RELATION_OP = "gf.relation"
MODULE_OP = "builtin.module"

Relations = Mapping[str, Relation]


def encode_space(space: Space) -> ir.Attribute | None:
    """The tensor encoding of a space, None for global."""
    if space == GLOBAL:
        return None
    assert space.kind in ("node", "edge"), f"no encoding of space {space!r}"
    make = ir.StringAttr.get if space.kind == "node" else ir.FlatSymbolRefAttr.get
    return make(space.name)


def decode_space(encoding: ir.Attribute | None) -> Space:
    """The space that the encoding of a tensor type names."""
    if encoding is None or isinstance(encoding, ir.UnitAttr):
        return GLOBAL
    kind = "edge" if isinstance(encoding, ir.FlatSymbolRefAttr) else "node"
    return Space(encoding.value, kind)


def encode_dtype(dtype: DType) -> ir.Type:
    """The element type of a dtype."""
    return ir.Type.parse(dtype.mlir)


def encode_type(type: Type, *, one: bool = False) -> ir.Type:
    """The tensor type of a value at every entity of its space, or at `one` of them."""
    leading = () if one or type.space == GLOBAL else (ir.ShapedType.get_dynamic_size(),)
    return ir.RankedTensorType.get(
        [*leading, *type.shape], encode_dtype(type.dtype), encode_space(type.space)
    )


def is_one(type: ir.Type) -> bool:
    """Whether a tensor type is that of one entity (a global value serves everywhere)."""
    return type.has_static_shape and type.encoding is not None


def decode_type(type: ir.Type) -> Type:
    """The value type that a tensor type stands for, at one entity or at all.

    Raises:
        InvalidValue: it stands for none.
    """
    if not isinstance(type, ir.RankedTensorType):
        raise InvalidValue(f"expected a tensor of a type that values have, got {type}")
    space = decode_space(type.encoding)
    shape = tuple(type.shape)
    whole = space != GLOBAL and bool(shape) and type.is_dynamic_dim(0)
    feature = shape[1:] if whole else shape
    if any(type.is_dynamic_dim(axis) for axis in range(int(whole), len(shape))):
        raise InvalidValue(f"feature axes have static extents, got {type}")
    try:
        return Type(dtype_of_mlir(str(type.element_type)), feature, space)
    except KeyError:
        raise InvalidValue(f"no element type {type.element_type}") from None


@dataclass(frozen=True)
class FieldKind:
    """How an op's dataclass field of one Python type becomes an attribute and back."""

    constraint: str
    encode: Callable[[Any], ir.Attribute]
    decode: Callable[[ir.Attribute, Relations], Any]


def _encode_space_field(space: Space) -> ir.Attribute:
    return ir.UnitAttr.get() if space == GLOBAL else encode_space(space)


def _decode_relation(attribute: ir.Attribute, relations: Relations) -> Relation:
    found = relations.get(attribute.value)
    if found is None:
        raise ValueError(f'no relation @{attribute.value} is declared with "{RELATION_OP}"')
    return found


def encode_texts(texts: Iterable[str]) -> ir.Attribute:
    """An array attribute of strings."""
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])


def decode_texts(attribute: ir.Attribute) -> tuple[str, ...]:
    """The strings of an array attribute.

    Raises:
        ValueError: it holds something else.
    """
    if not all(isinstance(item, ir.StringAttr) for item in attribute):
        raise ValueError(f"expected an array of strings, got {attribute}")
    return tuple(item.value for item in attribute)


FIELD_KINDS: dict[Any, FieldKind] = {
    bool: FieldKind(BOOLEAN, ir.BoolAttr.get, lambda attribute, _: attribute.value),
    float: FieldKind(
        NUMBER,
        lambda value: ir.FloatAttr.get(ir.F64Type.get(), value),
        lambda attribute, _: attribute.value,
    ),
    tuple[str, ...]: FieldKind(ARRAY, encode_texts, lambda attribute, _: decode_texts(attribute)),
    int: FieldKind(
        INTEGER,
        lambda value: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value),
        lambda attribute, _: attribute.value,
    ),
    str: FieldKind(STRING, ir.StringAttr.get, lambda attribute, _: attribute.value),
    tuple[int, ...]: FieldKind(
        INTEGERS, ir.DenseI64ArrayAttr.get, lambda attribute, _: tuple(attribute)
    ),
    DType: FieldKind(
        TYPE,
        lambda dtype: ir.TypeAttr.get(encode_dtype(dtype)),
        lambda attribute, _: dtype_of_mlir(str(attribute.value)),
    ),
    Space: FieldKind(ANY, _encode_space_field, lambda attribute, _: decode_space(attribute)),
    Relation: FieldKind(
        SYMBOL, lambda relation: ir.FlatSymbolRefAttr.get(relation.name), _decode_relation
    ),
}
"""By the field's annotation. A new kind of field is a new entry: ops with a field of no kind are in
no dialect. `Type` and `Program` have no entry: they are the result's type and a region."""


def relations_of(operation: ir.Operation) -> Relations:
    """The relations declared at the top of the nearest module around `operation`."""
    while operation.name != MODULE_OP:
        operation = operation.parent.operation
    found: dict[str, Relation] = {}
    for declared in operation.regions[0].blocks[0].operations:
        if declared.operation.name != RELATION_OP:
            break
        name, src, dst = (declared.attributes[key].value for key in ("sym_name", "src", "dst"))
        found[name] = Relation(name, Space(src, "node"), Space(dst, "node"))
    return found
