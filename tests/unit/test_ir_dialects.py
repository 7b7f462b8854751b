"""Dialects from tables, and what of the bindings they rely on."""

import gc

import pytest
from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.context import location, make_context, parse, text_of, where_of
from tiga.ir.dialects import INTEGER, STRING, Dialect, OpSpec
from tiga.ir.encoding import FIELD_KINDS, decode_type, encode_type, is_one
from tiga.passes.domain import fields_of
from tiga.passes.levels import new_context
from tiga.types import COMPLEX, DTYPES, GLOBAL, Relation, Space, Type

RELATION = Relation("edges", Space("src", "node"), Space("dst", "node"))
SPACES = (GLOBAL, RELATION.src, RELATION.edge)

TINY = Dialect(
    "tiny",
    (
        OpSpec("box", 0, 1, {"size": INTEGER, "label": STRING}, outcome="@tiny::@token"),
        OpSpec("sum", None, 1, values="@tiny::@token", traits=("pure",)),
        OpSpec("odd", 0, 0, {"size": INTEGER}, check=lambda op: _even(op)),
        OpSpec("loop", 0, 0, regions=("body",), traits=("no_terminator",)),
    ),
    types=("token",),
)


def _even(operation: ir.Operation) -> str | None:
    return None if operation.attributes["size"].value % 2 else "its size is odd"


def _parse(text: str) -> str:
    return text_of(parse(text, make_context([TINY])), locations=False)


def test_a_declared_op_parses_and_prints() -> None:
    text = _parse('%0 = "tiny.box"() {size = 3, label = "a"} : () -> !tiny.token')
    assert '"tiny.box"() {label = "a", size = 3 : i64} : () -> !tiny.token' in text


def test_a_region_needs_no_terminator() -> None:
    assert "tiny.odd" in _parse('"tiny.loop"() ({ "tiny.odd"() {size = 1} : () -> () }) : () -> ()')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"tiny.box"() {size = 3} : () -> !tiny.token', "attribute 'label' is missing"),
        ('"tiny.box"() {size = 3.0, label = "a"} : () -> !tiny.token', "is of kind IntegerAttr"),
        ('"tiny.box"() {size = 3, label = "a", x = 1} : () -> !tiny.token', "'x' is not declared"),
        ('"tiny.box"() {size = 3, label = "a"} : () -> i32', "tiny.token"),
        ('"tiny.odd"() {size = 2} : () -> ()', "tiny.odd: its size is odd"),
        ('"tiny.other"() : () -> ()', "tiny.other"),
        ('%0 = "tiny.sum"() : () -> i32', "tiny.token"),
    ],
)
def test_what_is_not_declared_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        _parse(text)


def test_errors_say_the_line() -> None:
    with pytest.raises(InvalidValue, match=r"model.mlir:2: tiny.odd: its size is odd"):
        parse('\n"tiny.odd"() {size = 2} : () -> ()', make_context([TINY]), "model.mlir")


def test_verifiers_outlive_the_tables() -> None:
    """The bindings keep what a context needs of a dialect, whatever else is collected."""
    context = make_context([Dialect("brief", (OpSpec("op", 0, 0, check=lambda op: "never"),))])
    gc.collect()
    with pytest.raises(InvalidValue, match="never"):
        parse('"brief.op"() : () -> ()', context)


def test_pure_ops_are_merged_by_native_passes() -> None:
    from torch_mlir.passmanager import PassManager

    context = new_context()
    module = parse(
        """func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
          %0 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
          %1 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
          func.call @g(%0, %1) : (tensor<?xf32, "src">, tensor<?xf32, "src">) -> ()
          return %1 : tensor<?xf32, "src">
        }
        func.func private @g(%x: tensor<?xf32, "src">, %y: tensor<?xf32, "src">)""",
        context,
    )
    PassManager.parse("builtin.module(cse)", context).run(module.operation)
    assert text_of(module).count("gf.exp") == 1


@pytest.mark.parametrize("where", [None, "model.py:12", "a dir/x:y.py:3", "no line at all", ""])
def test_locations_are_users_lines(where: str | None) -> None:
    with ir.Context():
        assert where_of(location(where)) == where


@pytest.mark.parametrize("dtype", [*DTYPES.values(), *COMPLEX], ids=str)
@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("one", [False, True])
def test_types_come_back(dtype, space, one) -> None:
    with ir.Context(), ir.Location.unknown():
        for shape in ((), (4,), (2, 0, 3)):
            encoded = encode_type(Type(dtype, shape, space), one=one)
            assert decode_type(encoded) == Type(dtype, shape, space)
            assert is_one(encoded) == (one and space != GLOBAL)


@pytest.mark.parametrize("text", ["tensor<?xf32>", 'tensor<?x?xf32, "src">', "tensor<4xi4>"])
def test_tensors_that_are_no_values_are_refused(text: str) -> None:
    with ir.Context(), pytest.raises(ValueError, match=r"static extents|element type"):
        decode_type(ir.Type.parse(text))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, -3), (str, 'a "b" \\ é'), (tuple[int, ...], ()), (tuple[int, ...], (1, -2)),
        *(((type(dtype)), dtype) for dtype in DTYPES.values()),
        *((Space, space) for space in SPACES), (Relation, RELATION),
    ],
)  # fmt: skip
def test_fields_come_back(kind, value) -> None:
    with ir.Context():
        field = FIELD_KINDS[kind]
        assert field.decode(field.encode(value), {"edges": RELATION}) == value


def test_every_op_s_fields_have_an_encoding() -> None:
    from tiga.ops import REGISTRY

    assert all(fields_of(op_class) is not None for op_class in REGISTRY.values())
