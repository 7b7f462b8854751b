"""One sample or more of every op of messages: its fields, its operands, the dtypes it takes.

Ops without fields need none here: pointwise ops take operands of one type, and what an op class
says of itself (its domain, whether it is exact) says the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiga.ops import REGISTRY, Op, Pointwise, feature, leaf, message, pointwise
from tiga.ops.bits import PackBits, UnpackBits
from tiga.ops.contract import Contract, OuterSum
from tiga.ops.extremum import RowExtremum
from tiga.ops.functions import tanh
from tiga.ops.lookup import IndexSum, Lookup
from tiga.ops.moments import SquaredDeviations
from tiga.ops.monoid import MONOIDS
from tiga.ops.random import RandomBits
from tiga.ops.scan import ScanAfter, ScanBefore
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import (
    DTYPES,
    FLOATS,
    GLOBAL,
    DType,
    Relation,
    Shape,
    Space,
    Type,
    bool_,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
)

EDGES = Relation("edges", Space("sources", "node"), Space("destinations", "node"))
INTEGERS = (int8, int16, int32, int64)
NUMBERS = (*FLOATS, *INTEGERS)
ALL = tuple(DTYPES.values())
WIDE = (float32, float64)
SHAPES: tuple[Shape, ...] = ((), (5,))
"""One element, where edges may lie across lanes, and several, where features do."""

HERE = "here"
"""The space of an operand that follows the sample: edges, rows or global."""

MODULES = (
    "bits",
    "contract",
    "extremum",
    "feature",
    "functions",
    "leaf",
    "lookup",
    "message",
    "moments",
    "pointwise",
    "random",
    "scan",
    "winners",
)
NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if name != "input" and op.__module__.removeprefix("tiga.ops.") in MODULES
)
"""Every op that is evaluated per edge or row. Those of whole tensors have tests of their own."""


@dataclass(frozen=True)
class Operand:
    """An operand: its shape, its space or `HERE`, and its dtype unless it is the sample's."""

    shape: Shape
    space: Space | str = HERE
    dtype: DType | None = None

    def type(self, dtype: DType, here: Space) -> Type:
        space = here if isinstance(self.space, str) else self.space
        return Type(self.dtype or dtype, self.shape, space)


@dataclass(frozen=True)
class Sample:
    """An op on operands; `of` makes the op where its fields depend on the dtype or the space."""

    label: str
    op: Op
    operands: tuple[Operand, ...]
    dtypes: tuple[DType, ...]

    @property
    def follows(self) -> bool:
        """Whether the op may be applied in any space."""
        return any(operand.space == HERE for operand in self.operands)

    def program(self, dtype: DType, spaces: Sequence[Space]) -> Program:
        """The op applied in each of `spaces`, as one program."""
        inputs: list[Node] = []
        outputs = []
        for place, space in enumerate(spaces):
            given = [
                leaf.Input(f"x{place}_{i}", operand.type(dtype, space))()
                for i, operand in enumerate(self.operands)
            ]
            inputs += given
            outputs.append(self.op(*given))
        return Program(tuple(inputs), (*outputs, *self._naming(outputs)))

    def _naming(self, outputs: Sequence[Node]) -> list[Node]:
        """A fact of the relation: a program on edges names their ends, if only so."""
        on_edges = any(n.type.space == EDGES.edge for out in outputs for n in (out, *out.inputs))
        return [message.degree(EDGES, "dst", float32)] if on_edges else []


_DTYPES = {
    "add": NUMBERS, "sub": NUMBERS, "mul": NUMBERS, "div": NUMBERS, "rem": NUMBERS,
    "neg": NUMBERS, "abs": NUMBERS, "sign": NUMBERS, "maximum": NUMBERS, "minimum": NUMBERS,
    "eq": ALL, "ne": ALL, "lt": NUMBERS, "le": NUMBERS, "gt": NUMBERS, "ge": NUMBERS,
    "logical_and": (bool_,), "logical_or": (bool_,), "logical_not": (bool_,),
    "where": ALL, "stop_gradient": ALL,
}  # fmt: skip
"""Of pointwise ops; all others are functions of floats."""


def _pointwise(name: str) -> list[Sample]:
    op = REGISTRY[name]()
    condition = (bool_,) if name == "where" else ()
    dtypes = _DTYPES.get(name, FLOATS)
    return [
        Sample(
            f"{name}{list(shape)}",
            op,
            (*(Operand(shape, HERE, c) for c in condition),
             *(Operand(shape) for _ in range(op.arity - len(condition)))),
            dtypes,
        )
        for shape in SHAPES
    ]  # fmt: skip


def _casts() -> list[Sample]:
    """From every dtype to every other."""
    return [
        Sample(f"cast[{to}]{list(shape)}", pointwise.Cast(to), (Operand(shape),), others)
        for to in ALL
        for others in (tuple(dtype for dtype in ALL if dtype != to),)
        for shape in SHAPES
    ]


def _moves(*cases: tuple[Op, Shape]) -> list[Sample]:
    return [Sample(f"{op.name}{list(shape)}", op, (Operand(shape),), ALL) for op, shape in cases]


def _along(op_class: type[Op], dtypes: Sequence[DType]) -> list[Sample]:
    return [
        Sample(f"{op_class.name}{list(shape)}-{axis}", op_class(axis), (Operand(shape),), dtypes)
        for shape in ((1,), (7,), (3, 5), (2, 3, 4))
        for axis in range(len(shape))
    ]


def _concats() -> list[Sample]:
    pairs = [(0, ((3,), (2,), (1,))), (1, ((2, 1), (2, 3)))]
    return [
        Sample(f"concat-{axis}", feature.Concat(axis), tuple(map(Operand, shapes)), ALL)
        for axis, shapes in pairs
    ]


def _reductions() -> list[Sample]:
    def dtypes(kind: str) -> Sequence[DType]:
        return NUMBERS if MONOIDS[kind].selects else (*WIDE, int32, int64)

    return [
        Sample(
            f"reduce[{kind},{side}]{list(shape)}",
            message.Reduce(EDGES, side, kind),
            (Operand(shape, EDGES.edge),),
            tuple(dtypes(kind)),
        )
        for kind in sorted(MONOIDS)
        for side in ("dst", "src")
        for shape in SHAPES
    ]


def _of_sides(op_class: type[Op], dtypes: Sequence[DType], at_ends: bool) -> list[Sample]:
    """An op of a relation and a side, on a value of that end's nodes or of the edges."""
    return [
        Sample(
            f"{op_class.name}[{side}]{list(shape)}",
            op_class(EDGES, side),
            (Operand(shape, EDGES.end(side) if at_ends else EDGES.edge),),
            tuple(dtypes),
        )
        for side in ("dst", "src")
        for shape in SHAPES
    ]


def _masked(op_class: type[Op], fields: tuple, dtypes: Sequence[DType]) -> list[Sample]:
    """An op of the messages that count among those of a row."""
    return [
        Sample(
            f"{op_class.name}[{side}]{list(fields)}{list(shape)}", op_class(EDGES, side, *fields),
            (Operand(shape, EDGES.edge), Operand(shape, EDGES.edge, bool_)), tuple(dtypes),
        )
        for side in ("dst", "src")
        for shape in SHAPES
    ]  # fmt: skip


def _scans(op_class: type[Op]) -> list[Sample]:
    samples = []
    for dtype in WIDE:
        for side, reverse in (("dst", False), ("dst", True), ("src", False), ("src", True)):
            of = Type(dtype, (3,), GLOBAL)
            carry, x = leaf.Input("carry", of)(), leaf.Input("x", of)()
            step = Program((carry, x), (tanh(pointwise.add(pointwise.mul(carry, x), x)),))
            operands = (Operand((3,), EDGES.end(side)), Operand((3,), EDGES.edge))
            label = f"{op_class.name}[{side},{'reverse' if reverse else 'forward'}]"
            op = op_class(EDGES, side, reverse, step)
            samples.append(Sample(label, op, operands, (dtype,)))
    return samples


def _constants() -> list[Sample]:
    numbers = (0.1, -0.0, 3, np.inf, -2)
    types = (Type(dtype, (3,), space) for dtype in ALL for space in (EDGES.edge, EDGES.dst))
    return [
        Sample(f"constant[{number}]", leaf.constant(number, of).op, (), (of.dtype,))
        for of in types
        for number in numbers
        if of.dtype.is_float or (float(number).is_integer() and number >= 0)
    ]


BITS = {(): 1, (5,): 1, (32,): 1, (40,): 2, (3, 24): 3}
"""Shapes of booleans, and the words that hold so many bits."""

_SAMPLES = {
    "cast": _casts,
    "constant": _constants,
    "broadcast": lambda: _moves(
        (feature.Broadcast((4,)), ()), (feature.Broadcast((2, 3)), (3,)),
        (feature.Broadcast((2, 3)), (2, 1)),
    ),
    "reshape": lambda: _moves((feature.Reshape((3, 2)), (6,)), (feature.Reshape((6,)), (2, 3))),
    "permute": lambda: _moves(
        (feature.Permute((1, 0)), (2, 3)), (feature.Permute((2, 0, 1)), (2, 1, 3))
    ),
    "take": lambda: _moves(
        (feature.Take(0, (4, 0, 0, 2)), (5,)), (feature.Take(1, (1,)), (2, 3)),
        (feature.Take(0, (2,)), (3,)),
    ),
    "put": lambda: _moves(
        (feature.Put(0, (3, 1), 5), (2,)), (feature.Put(1, (2,), 3), (2, 1)),
    ),
    "concat": _concats,
    "feature_sum": lambda: _along(feature.FeatureSum, (*FLOATS, int32, int64)),
    "feature_max": lambda: _along(feature.FeatureMax, NUMBERS),
    "feature_min": lambda: _along(feature.FeatureMin, NUMBERS),
    "gather": lambda: _of_sides(message.Gather, ALL, at_ends=True),
    "reduce": _reductions,
    "exclusive_prod": lambda: _of_sides(message.ExclusiveProd, WIDE, at_ends=False),
    "squared_deviations": lambda: _masked(SquaredDeviations, (), WIDE),
    "row_extremum": lambda: [
        *_masked(RowExtremum, ("max", 0.0), NUMBERS), *_masked(RowExtremum, ("min", -1.0), NUMBERS)
    ],
    "degree": lambda: [
        Sample(f"degree[{side},{dtype}]", message.Degree(EDGES, side, dtype), (), (dtype,))
        for side in ("dst", "src")
        for dtype in (*FLOATS, int32, int64)
    ],
    "edge_index": lambda: [Sample("edge_index", message.EdgeIndex(EDGES), (), (int64,))],
    "spread": lambda: [
        Sample(f"spread[{space}]", message.Spread(space), (Operand((3,), GLOBAL),), ALL)
        for space in (EDGES.edge, EDGES.dst)
    ],
    "reduce_all": lambda: [
        Sample(f"reduce_all[{space}]", message.ReduceAll(), (Operand((3,), space),), WIDE)
        for space in (EDGES.dst, EDGES.src, EDGES.edge)
    ],
    "contract": lambda: [
        Sample(f"contract{list(shape)}", Contract(), (Operand(shape), matrix), FLOATS)
        for shape in ((6,), (2, 6))
        for matrix in (Operand((6, 4), GLOBAL),)
    ],
    "outer_sum": lambda: [
        Sample(f"outer_sum[{space}]", OuterSum(), operands, WIDE)
        for space in (EDGES.edge, EDGES.dst)
        for operands in ((Operand((4,), space), Operand((3,), space)),)
    ],
    "lookup": lambda: [
        Sample(f"lookup{list(table)}{list(index)}", Lookup(),
               (Operand(table, GLOBAL), Operand(index, HERE, int64)), ALL)
        for table in ((6,), (6, 4), (6, 2, 3))
        for index in ((), (3,))
    ],
    "index_sum": lambda: [
        Sample(f"index_sum[{space}]{list(index)}", IndexSum(6),
               (Operand(index, space, int64), Operand((*index, 4), space)), WIDE)
        for space in (EDGES.edge, EDGES.dst)
        for index in ((), (3,))
    ],
    "random_bits": lambda: [
        Sample(f"random_bits[{word}]{list(shape)}", RandomBits(3, word), (Operand(shape),) * 3,
               (int64,))
        for word in (0, 3)
        for shape in SHAPES
    ],
    "pack_bits": lambda: [
        Sample(f"pack_bits{list(shape)}", PackBits(), (Operand(shape),), (bool_,))
        for shape in BITS
    ],
    "unpack_bits": lambda: [
        Sample(f"unpack_bits{list(shape)}", UnpackBits(shape), (Operand((count,)),), (int32,))
        for shape, count in BITS.items()
    ],
    "scan_before": lambda: _scans(ScanBefore),
    "scan_after": lambda: _scans(ScanAfter),
}  # fmt: skip


def samples_of(name: str) -> list[Sample]:
    """The samples of an op; KeyError when it has fields and no entry here."""
    if name in _SAMPLES:
        return _SAMPLES[name]()
    if not issubclass(REGISTRY[name], Pointwise):
        raise KeyError(f"no sample of {name!r}: it is not pointwise")
    return _pointwise(name)
