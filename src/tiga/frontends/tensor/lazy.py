"""Expressions of tensors: trace nodes that know where they were built and may hold a value.

A node of a tensor is not interned when it is built, as most are evaluated once and looking for an
equal one costs more than a small evaluation; common subexpressions are found when a program is
made of them (`program.py`).
"""

import contextlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from os import sep
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from tiga.errors import InvalidValue
from tiga.ops.base import Op
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Type, dtype_of_numpy

_PACKAGE = str(Path(__file__).parents[2])
_FOLDERS = tuple(
    f"{_PACKAGE}{sep}{folder}{sep}"
    for folder in ("frontends", "autograd", "backends", "reducers", "runtime", "trace", "ops")
)
_FILES = {
    contextlib.__file__,
    *(f"{_PACKAGE}{sep}{name}.py" for name in ("functions", "served", "tensor_compiler")),
}


class _Own(dict[str, bool]):
    """Whether a file of code is none of the user's."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = file in _FILES or file.startswith(_FOLDERS)
        return own


_OWN = _Own()

COMPILE_FROM = 32768
"""Elements of a program's largest value from which it is compiled."""

LARGE = 1 << 62
"""What counts as the size of the largest value where it is not known: it has to be looked for."""

MADE_UP = (1_000_003, 1_000_033)
"""The extents of tensors that stand for all edges, and for all nodes: no feature axis has them."""

Place = tuple[CodeType, int]


def user_place(own: int = 1) -> Place | None:
    """The nearest line on the stack outside of this package, as code and instruction; the first
    `own` callers are known to be within it."""
    frame = sys._getframe(own)
    while frame is not None and _OWN[frame.f_code.co_filename]:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code, frame.f_lasti)


def place_text(place: Place | None) -> str | None:
    """`file:line` of a place."""
    if place is None:
        return None
    code, instruction = place
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


def here() -> str:
    """The user's line, for messages."""
    return place_text(user_place()) or "an unknown line"


class Cell:
    """A value in memory: `array` holds it; `stale` says that its owner was written in place
    since, so that derivatives through it would mix old and new values. While the value is
    not in memory, `absent` brings it back: reading `array` does."""

    __slots__ = ("__weakref__", "absent", "array", "stale")

    absent: Any

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.stale = False
        self.absent = None

    def __getattr__(self, name: str) -> Any:
        # Reached only where the slot is empty: a value in memory costs no more for this.
        if name != "array":
            raise AttributeError(f"a cell has no attribute {name!r}")
        while True:  # other threads may bring it back meanwhile, or move it out again
            absent = self.absent
            if absent is not None:
                absent.restore()
            with contextlib.suppress(AttributeError):
                return object.__getattribute__(self, name)


def filled(value: Any, type_: Type) -> Cell:
    """One number in every element."""
    one = np.full((1,) * len(type_.shape), value, type_.dtype.numpy)
    return Cell(np.broadcast_to(one, type_.shape))


@dataclass(frozen=True, eq=False, init=False)
class Leaf(Op):
    """A value that is given, not computed: an input of every program it is part of."""

    name: ClassVar[str] = "input"
    __eq__ = object.__eq__  # the base class compares fields only of its own
    __hash__ = object.__hash__
    arity = 0
    origin = Origin.ARGUMENT
    of: Type
    label: str
    tensor: Any

    def __init__(self, of: Type, label: str = "leaf", tensor: Any = None) -> None:
        # Every value becomes one: setting the fields of a frozen class one by one takes longer.
        self.__dict__.update(of=of, label=label, tensor=tensor)

    def infer(self, *types: Type) -> Type:
        return self.of

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        raise InvalidValue(
            f"a tensor of shape {self.of.shape} inside {self.label} has no value yet ({here()}): "
            "it stands for many; decide with tg.where instead of looking at it, and use x = x + y "
            "instead of a write in place."
        )


class LazyNode(Node):
    """A node of a tensor: `cell` is its value once there is one, `depth` the length of the
    longest chain of nodes below it that have none, `largest` the size of the largest of them.
    `wanted` is set where derivatives with respect to it can be asked for (see `is_wanted`)."""

    __slots__ = ("cell", "depth", "largest", "place", "source", "wanted")

    cell: Cell | None
    source: Any
    wanted: bool

    def __init__(
        self, op: Any, inputs: tuple[Node, ...], type: Type, place: Place | None, depth: int = 0,
        largest: int = 0,
    ) -> None:  # fmt: skip
        self.op = op
        self.inputs = inputs
        self.type = type
        self.place = place
        self.cell = None
        self.depth = depth
        self.largest = largest or type.size

    @property
    def where(self) -> str | None:  # type: ignore[override]
        return place_text(self.place)


class Unbuilt(LazyNode):
    """A result of an application of a record (`record.py`), `source` with the result's number.
    Its op and inputs are made when they are asked for: most never are, as the application tells
    what is computed. It is a plain node from then on."""

    __slots__ = ()

    def __init__(
        self, source: Any, type: Type, place: Place | None, depth: int, largest: int
    ) -> None:
        self.source = source
        self.type = type
        self.place = place
        self.cell = None
        self.depth = depth
        self.largest = largest

    def __getattr__(self, name: str) -> Any:
        if name not in ("op", "inputs"):
            raise AttributeError(f"a node has no attribute {name!r}")
        source = self.source
        if source is not None:  # else another thread has built it by now
            source[0].build()
        return getattr(self, name)

    def become(self, op: Any, inputs: tuple[Node, ...]) -> None:
        """Be a plain node."""
        self.op = op
        self.inputs = inputs
        self.__class__ = LazyNode  # type: ignore[assignment]
        self.source = None


@lru_cache(maxsize=4096)
def type_of(dtype: np.dtype, shape: tuple[int, ...]) -> Type:
    """The type of an array: one object for equal ones, which comparisons tell at once."""
    return Type(dtype_of_numpy(dtype), shape, GLOBAL)


_given = lru_cache(maxsize=4096)(Leaf)
# Values in memory of one type have one op: it is their cells that tell them apart.


def leaf(array: np.ndarray, type: Type, place: Place | None = None) -> LazyNode:
    """The node of a value in memory. One on a GPU counts as large: numpy does not see it."""
    elsewhere = array.__class__ is DeviceArray
    node = LazyNode(_given(type), (), type, place, 0, LARGE if elsewhere else 0)
    node.cell = Cell(array)
    return node


HELPER = "helper"
"""The label of values that Tiga made for itself, which go with operands on any device."""


def _own_references() -> int:
    node = object()
    return sys.getrefcount(node)


OWN_REFERENCES = _own_references()
"""References to a node that nobody but one variable has, and what the count itself adds, which
differs between versions of Python."""


def is_wanted(node: Node) -> bool:
    """Whether derivatives with respect to this very value can be asked for."""
    return getattr(node, "wanted", False)


def helping(given: LazyNode) -> LazyNode:
    """A given value as one of these."""
    node = LazyNode(Leaf(given.type, HELPER), (), given.type, given.place)
    node.cell = given.cell
    return node
