"""Programs written as `gf` modules and read back are the same programs, node for node."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiga.ir.context import make_context, parse, text_of, verify
from tiga.ops import REGISTRY, Pointwise, feature, functions, leaf, message, pointwise
from tiga.ops.contract import Contract, OuterSum
from tiga.ops.monoid import MONOIDS
from tiga.passes.domain import INPUT, gf
from tiga.passes.emit import emit
from tiga.passes.read import read
from tiga.reducers import LogSumExp, Max, Mean, Messages, Min, Prod, Softmax, Std, Sum, Var
from tiga.trace.derivatives import Rules, gradient, tangent, training
from tiga.trace.node import Node, intern
from tiga.trace.program import Program
from tiga.types import DTYPES, GLOBAL, Relation, Space, Type, bool_, float16, float32, float64

EDGES = Relation("edges", Space("user", "node"), Space("item", "node"))
SPACES = (GLOBAL, EDGES.src, EDGES.dst, EDGES.edge)
SHAPES = ((), (1,), (4,), (2, 3), (3, 1, 2))
RULES = Rules(pointwise.add, lambda label, of: leaf.Input(label, of)())


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
    "degree": _message(message.Degree, dtypes=st.sampled_from([float32, float64])),
    "spread": lambda draw, x: message.Spread(draw(st.sampled_from(SPACES[1:]))),
    "reduce_all": lambda draw, x: message.ReduceAll(),
    "contract": lambda draw, x: Contract(),
    "outer_sum": lambda draw, x: OuterSum(),
    "constant": lambda draw, x: leaf.constant(draw(st.integers(-3, 3)), x.type).op,
}


def _op(draw, name: str, x: Node):
    if name in MAKERS:
        return MAKERS[name](draw, x)
    return REGISTRY[name]()


def _operands(draw, name: str, op, x: Node, pool: list[Node]) -> tuple[Node, ...]:
    if op.arity == 0:
        return ()
    if name == "where":
        return make_input("condition", x.type.with_dtype(bool_)), x, x
    if name == "contract":
        return x, make_input("matrix", Type(x.type.dtype, (x.type.shape[-1], 5), GLOBAL))
    count = draw(st.integers(1, 3)) if op.arity is None else op.arity
    alike = [n for n in pool if n.type == x.type]
    return (x, *(draw(st.sampled_from(alike)) for _ in range(count - 1)))


def _inputs_of(outputs: list[Node]) -> tuple[Node, ...]:
    from tiga.trace.node import topological

    return tuple(n for n in topological(outputs) if n.op.name == INPUT)


@st.composite
def programs(draw) -> Program:
    """A program of some ops of the registry in any order, built without folding."""
    types = st.builds(
        Type, st.sampled_from(list(DTYPES.values())), st.sampled_from(SHAPES),
        st.sampled_from(SPACES),
    )  # fmt: skip
    wheres = st.sampled_from([None, "model.py:12", "dir with space/my:model.py:7"])
    pool = [make_input(f"x{i}", draw(types), draw(wheres)) for i in range(3)]
    for name in draw(st.lists(st.sampled_from(sorted(set(REGISTRY) - {INPUT})), max_size=25)):
        x = draw(st.sampled_from(pool))
        op = _op(draw, name, x)
        try:
            operands = _operands(draw, name, op, x, pool)
            type = op.infer(*(n.type for n in operands))
        except (AssertionError, AttributeError, IndexError, ValueError):
            continue  # the op does not take this operand
        pool.append(intern(op, operands, type, draw(wheres)))
    outputs = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    return Program(_inputs_of(outputs), tuple(outputs))


@given(programs())
def test_any_program_survives(program: Program) -> None:
    round_trip({"program": program})


def test_random_programs_know_every_op_with_fields() -> None:
    import dataclasses

    with_fields = {name for name, op in REGISTRY.items() if dataclasses.fields(op)}
    assert with_fields - {INPUT} <= set(MAKERS)


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


def test_pointwise_ops_need_no_maker() -> None:
    assert all(issubclass(REGISTRY[n], Pointwise) for n in set(REGISTRY) - set(MAKERS) - {INPUT})


def test_sum_of_many_terms() -> None:
    x = make_input("x", Type(float32, (64,), EDGES.edge))
    terms = [pointwise.mul(x, leaf.constant(i + 2, x.type)) for i in range(60)]
    round_trip({"f": Program((x,), (reduce(pointwise.add, terms),))})
