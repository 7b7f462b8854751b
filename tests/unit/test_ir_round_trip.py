"""Programs written as `gf` modules and read back are the same programs, node for node."""

import dataclasses
from functools import reduce
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tiga.errors import InvalidValue
from tiga.ir.context import make_context, parse, text_of, verify
from tiga.ops import REGISTRY, Op, feature, functions, leaf, message, pointwise
from tiga.ops.contract import Contract, OuterSum
from tiga.ops.extremum import RowExtremum
from tiga.ops.moments import SquaredDeviations
from tiga.ops.monoid import MONOIDS
from tiga.ops.scan import ScanAfter, ScanBefore
from tiga.passes.differentiate import RULES
from tiga.passes.domain import INPUT, gf
from tiga.passes.emit import emit
from tiga.passes.read import read
from tiga.reducers import LogSumExp, Max, Mean, Messages, Min, Prod, Softmax, Std, Sum, Var
from tiga.trace.derivatives import gradient, tangent, training
from tiga.trace.node import Node, intern
from tiga.trace.program import Program
from tiga.types import (
    COMPLEX,
    DTYPES,
    GLOBAL,
    DType,
    Relation,
    Space,
    Type,
    bool_,
    float16,
    float32,
    float64,
    int64,
)

EDGES = Relation("edges", Space("user", "node"), Space("item", "node"))
SPACES = (GLOBAL, EDGES.src, EDGES.dst, EDGES.edge)
SHAPES = ((), (1,), (4,), (2, 3), (3, 1, 2))


def make_input(label: str, of: Type, where: str | None = None) -> Node:
    return leaf.Input(label, of)(where=where)


def round_trip(programs: dict[str, Program]) -> None:
    context = make_context([gf()])
    module = emit(programs, context)
    verify(module)
    for again in (module, parse(text_of(module), context)):
        found = read(again)
        assert list(found) == list(programs)
        for name, program in programs.items():
            assert found[name] == program, f"{name} changed:\n{text_of(again)}"


# Random programs: a maker per op class that has fields; it draws fields that fit the operand.


def _axis(draw, x: Node) -> int | None:
    rank = len(x.type.shape)
    return draw(st.integers(0, rank - 1)) if rank else None


def _cast(draw, x):
    return pointwise.Cast(draw(st.sampled_from(list(DTYPES.values()))))


def _broadcast(draw, x):
    lead = draw(st.sampled_from([(), (2,), (1, 3)]))
    return feature.Broadcast((*lead, *(3 if e == 1 else e for e in x.type.shape)))


def _reshape(draw, x):
    return feature.Reshape(draw(st.sampled_from([(x.type.size,), (1, x.type.size)])))


def _permute(draw, x):
    return feature.Permute(tuple(draw(st.permutations(range(len(x.type.shape))))))


def _take(draw, x):
    axis = _axis(draw, x)
    if axis is None:
        return None
    position = st.integers(0, x.type.shape[axis] - 1)
    return feature.Take(axis, tuple(draw(st.lists(position, min_size=1, max_size=5))))


def _put(draw, x):
    axis = _axis(draw, x)
    if axis is None:
        return None
    extent = x.type.shape[axis] + draw(st.integers(0, 3))
    positions = draw(st.permutations(range(extent)))[: x.type.shape[axis]]
    return feature.Put(axis, tuple(positions), extent)


def _along(op_class):
    def make(draw, x):
        axis = _axis(draw, x)
        return None if axis is None else op_class(axis)

    return make


def _message(op_class, *, dtypes=None):
    def make(draw, x):
        side = draw(st.sampled_from(["src", "dst"]))
        return op_class(EDGES, side) if dtypes is None else op_class(EDGES, side, draw(dtypes))

    return make


def _scan(op_class):
    """Steps that read the carry and one element, on values of the operand's shape and dtype."""

    def make(draw, x):
        of = x.type.with_space(GLOBAL)
        carry, element = make_input(draw(st.sampled_from(["carry", "x0"])), of), make_input("e", of)
        binary = draw(st.sampled_from([pointwise.add, pointwise.mul, pointwise.maximum]))
        step = Program((carry, element), (binary(carry, binary(element, carry)),))
        return op_class(EDGES, draw(st.sampled_from(["src", "dst"])), draw(st.booleans()), step)

    return make


FIELDS = {
    int: st.integers(0, 3),
    bool: st.booleans(),
    DType: st.sampled_from(list(DTYPES.values())),
    Space: st.sampled_from(SPACES),
    Relation: st.just(EDGES),
    tuple[int, ...]: st.lists(st.integers(0, 3), max_size=3).map(tuple),
    str: st.sampled_from(["src", "dst"]),
}


def _by_fields(draw, name: str):
    """An op whose fields are drawn by their annotations; inference refuses those that are wrong."""
    hints = get_type_hints(REGISTRY[name])
    fields = dataclasses.fields(REGISTRY[name])
    return REGISTRY[name](**{field.name: draw(FIELDS[hints[field.name]]) for field in fields})


MAKERS = {
    "cast": _cast,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "permute": _permute,
    "take": _take,
    "put": _put,
    "concat": _along(feature.Concat),
    "feature_sum": _along(feature.FeatureSum),
    "feature_max": _along(feature.FeatureMax),
    "feature_min": _along(feature.FeatureMin),
    "gather": _message(message.Gather),
    "reduce": _message(message.Reduce, dtypes=st.sampled_from(sorted(MONOIDS))),
    "exclusive_prod": _message(message.ExclusiveProd),
    "squared_deviations": _message(SquaredDeviations),
    "row_extremum": lambda draw, x: RowExtremum(
        EDGES, draw(st.sampled_from(["src", "dst"])), draw(st.sampled_from(["max", "min"])), 0.5
    ),
    "degree": _message(message.Degree, dtypes=st.sampled_from([float32, float64])),
    "spread": lambda draw, x: message.Spread(draw(st.sampled_from(SPACES[1:]))),
    "reduce_all": lambda draw, x: message.ReduceAll(),
    "contract": lambda draw, x: Contract(),
    "outer_sum": lambda draw, x: OuterSum(),
    "scan_before": _scan(ScanBefore),
    "scan_after": _scan(ScanAfter),
    "constant": lambda draw, x: leaf.constant(draw(st.integers(-3, 3)), x.type).op,
}


def _op(draw, name: str, x: Node):
    if name in MAKERS:
        return MAKERS[name](draw, x)
    return _by_fields(draw, name)


def _scanned(op, x: Node) -> tuple[Node, Node]:
    """A start at the rows and an element on the edges, one of which is `x`."""
    row, edge = op.relation.end(op.side), op.relation.edge
    if x.type.space == edge:
        return make_input("start", x.type.with_space(row)), x
    return x, make_input("element", x.type.with_space(edge))


def _operands(draw, name: str, op, x: Node, pool: list[Node]) -> tuple[Node, ...]:
    if op.arity == 0:
        return ()
    if name == "where":
        return make_input("condition", x.type.with_dtype(bool_)), x, x
    if name in ("squared_deviations", "row_extremum"):
        return x, make_input("keep", x.type.with_dtype(bool_))
    if name.startswith("scan_"):
        return _scanned(op, x)
    if name == "matmul":
        return x, make_input("y", x.type.with_shape((*x.type.shape[:-2], x.type.shape[-1], 2)))
    if name == "contract":
        return x, make_input("matrix", Type(x.type.dtype, (x.type.shape[-1], 5), GLOBAL))
    if name == "lookup":
        return make_input("table", Type(x.type.dtype, (4, 3), GLOBAL)), make_index(x)
    if name == "index_sum":
        return make_index(x), make_input("y", Type(float32, (*x.type.shape, 3), x.type.space))
    if name == "random_bits":
        return (make_index(x),) * 3
    count = draw(st.integers(1, 3)) if op.arity is None else op.arity
    alike = [n for n in pool if n.type == x.type]
    return (x, *(draw(st.sampled_from(alike)) for _ in range(count - 1)))


def make_index(x: Node) -> Node:
    return make_input("index", x.type.with_dtype(int64))


def _inputs_of(outputs: list[Node]) -> tuple[Node, ...]:
    from tiga.trace.node import topological

    return tuple(n for n in topological(outputs) if n.op.name == INPUT)


OPS = st.sampled_from(sorted(set(REGISTRY) - {INPUT}))


@st.composite
def programs(draw, names=OPS) -> Program:
    """A program of some ops of the registry in any order, built without folding."""
    types = st.builds(
        Type, st.sampled_from([*DTYPES.values(), *COMPLEX]), st.sampled_from(SHAPES),
        st.sampled_from(SPACES),
    )  # fmt: skip
    wheres = st.sampled_from([None, "model.py:12", "dir with space/my:model.py:7"])
    pool = [make_input(f"x{i}", draw(types), draw(wheres)) for i in range(3)]
    for name in draw(st.lists(names, max_size=25)):
        x = draw(st.sampled_from(pool))
        op = _op(draw, name, x)
        try:
            operands = _operands(draw, name, op, x, pool)
            type = op.infer(*(n.type for n in operands))
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            continue  # the op does not take this operand
        pool.append(intern(op, operands, type, draw(wheres)))
    outputs = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    return Program(_inputs_of(outputs), tuple(outputs))


@given(programs())
def test_any_program_survives(program: Program) -> None:
    round_trip({"program": program})


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {INPUT}))
def test_random_programs_hold_every_op(name: str) -> None:
    def holds(program: Program) -> bool:
        return any(node.op.name == name for node in program.order)

    # Any one will do, so a smaller one is not looked for.
    search = settings(max_examples=5000, phases=[Phase.generate])
    round_trip({"program": find(programs(st.just(name)), holds, settings=search)})


REDUCERS = [Sum(), Mean(), Max(), Min(), Prod(), Var(), Std(), LogSumExp(), Softmax()]


def _forward(reducer, dtype) -> Program:
    of = Type(dtype, (2, 3), EDGES.src)
    x, y = make_input("x", of, "model.py:3"), make_input("y", of.with_space(EDGES.dst))
    scale = make_input("scale", Type(dtype, (), GLOBAL))
    value = functions.tanh(
        pointwise.sub(message.gather(EDGES, "src", x), message.gather(EDGES, "dst", y))
    )
    spread = feature.broadcast(message.spread(scale, EDGES.edge), (2, 3))
    value = pointwise.mul(value, spread)
    score = feature.feature_sum(value, 1)
    parts = (score, value) if reducer.arguments == 2 else (value,)
    keep = make_input("keep", Type(bool_, (), EDGES.edge))
    row = reducer.rows(Messages(EDGES, parts, keep))
    return Program((x, y, scale, keep), (row,))


@pytest.mark.parametrize("dtype", [float16, float64], ids=str)
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_derivatives_of_every_reducer_survive(reducer, dtype) -> None:
    trained = training(_forward(reducer, dtype), (0, 1, 2), RULES)
    first = gradient(trained, (0, 1, 2), (0,), RULES)
    wanted = [i for i, n in enumerate(first.program.inputs) if n.type.dtype.is_float]
    present = range(len(first.program.outputs))
    second = gradient(training(first.program, wanted, RULES), wanted, present, RULES)
    forward_mode, _ = tangent(trained, (0,), RULES)
    round_trip(
        {"forward": trained, "gradient": first.program, "second": second.program,
         "tangent": forward_mode}
    )  # fmt: skip


def test_users_lines_survive() -> None:
    of = Type(float32, (4,), EDGES.src)
    x = make_input("a label never used elsewhere", of, "model.py:3")
    y = functions.sin(x, where="my model.py:14")
    context = make_context([gf()])
    text = text_of(emit({"f": Program((x,), (y,))}, context))
    assert '"model.py":3' in text
    assert '"my model.py":14' in text
    del x, y  # nodes are shared while they live: read must make new ones to prove anything
    program = read(parse(text, context))["f"]
    assert program.inputs[0].where == "model.py:3"
    assert program.outputs[0].where == "my model.py:14"


def test_constants_keep_their_bits() -> None:
    numbers = [0.1, -0.0, float("inf"), float(np.finfo(np.float32).tiny), 1e-45]
    outputs = tuple(leaf.constant(v, Type(float32, (), GLOBAL)) for v in numbers)
    round_trip({"f": Program((), outputs)})


def test_sum_of_many_terms() -> None:
    x = make_input("x", Type(float32, (64,), EDGES.edge))
    terms = [pointwise.mul(x, leaf.constant(i + 2, x.type)) for i in range(60)]
    round_trip({"f": Program((x,), (reduce(pointwise.add, terms),))})


def _scan_program() -> Program:
    """Both results of a recurrence over the edges of a row."""
    of = Type(float32, (4,), EDGES.dst)
    start, x = make_input("start", of), make_input("x", of.with_space(EDGES.edge))
    carry, element = (make_input(label, of.with_space(GLOBAL)) for label in ("carry", "element"))
    step = Program((carry, element), (functions.tanh(pointwise.mul(carry, element)),))
    results = (op(EDGES, "dst", False, step)(start, x) for op in (ScanBefore, ScanAfter))
    return Program((start, x), tuple(results))


def test_scans_and_their_derivatives_survive() -> None:
    """Regions within programs, to the second order: steps hold the steps' derivatives."""
    trained = training(_scan_program(), (0, 1), RULES)
    first = gradient(trained, (0, 1), (0, 1), RULES).program
    wanted = range(len(first.inputs))
    second = gradient(training(first, wanted, RULES), wanted, range(len(first.outputs)), RULES)
    moving, _ = tangent(trained, (0, 1), RULES)
    programs = {"f": trained, "g": first, "h": second.program, "t": moving}
    assert all(any(n.op.name == "scan_after" for n in p.order) for p in programs.values())
    round_trip(programs)


@pytest.fixture
def strange_op():
    """An op with a field of a kind that has no encoding."""

    @dataclasses.dataclass(frozen=True)
    class Strange(Op, name="test_strange"):
        table: frozenset
        arity = 1

        def infer(self, x: Type) -> Type:
            return x

    yield Strange
    del REGISTRY["test_strange"]


def test_an_op_that_cannot_be_written_fails_alone(strange_op) -> None:
    x = make_input("x", Type(float32, (4,), EDGES.src))
    round_trip({"f": Program((x,), (functions.exp(x),))})
    strange = Program((x,), (strange_op(frozenset("ab"))(x),))
    with pytest.raises(InvalidValue, match=r"gf\.test_strange: expected fields of .*'table'"):
        emit({"f": strange}, make_context([gf()]))
