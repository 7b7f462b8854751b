"""What an op is: one frozen class with its fields, inference, oracle, derivatives and lowering."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tiga.ops.arithmetic import Arithmetic, Value
from tiga.trace.node import Node, intern
from tiga.trace.origin import Origin
from tiga.types import Type

REGISTRY: dict[str, type["Op"]] = {}
"""Every op class by name: what dialects, readers, conformance tests and docs are derived from."""


@dataclass(frozen=True)
class Op:
    """An operation. Fields of the dataclass are its attributes; calling it builds a node.

    Laws: `infer` raises for types the op cannot take; `reference` is the meaning, on numpy arrays
    whose first axis is the entity axis (of extent 1 when the space is global); `vjp` returns one
    cotangent or None per input, made of registered ops; `jvp` agrees with `vjp`. `holomorphic`
    says that on complex operands `vjp` multiplies by a complex derivative (`trace.autodiff`
    conjugates it).

    Facts, held by `tests/conformance/test_facts.py`, are what compilers ask an op; they do not ask
    which one it is.
    """

    name: ClassVar[str]
    arity: ClassVar[int | None] = None
    holomorphic: ClassVar[bool] = True
    origin: ClassVar[Origin] = Origin.OPERANDS
    """Where its values come from."""
    table: ClassVar[int | None] = None
    """The operand that is a matrix or a table, of which every entity reads what it needs."""
    by_index: ClassVar[bool] = False
    """Whether an operand tells which rows of a table an entity reads, or adds to."""
    axis_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that number axes of the operands."""
    pointwise: ClassVar[bool] = False
    """Whether each element is made of the same element of every operand."""
    batches: ClassVar[bool] = False
    """Of whole tensors: whether a further leading axis of all operands is one of the value."""
    converts: ClassVar[bool] = False
    """Whether it is its operand in another dtype: what makes it needs to know both."""
    identity: ClassVar[bool] = False
    """Whether it is its operand as it is, which says something to a pass or a derivative."""
    moves: ClassVar[bool] = False
    """Whether the value holds elements of the operands, or zeros, at other places of the entity."""
    fills: ClassVar[bool] = False
    """Whether some of the elements of what it moves are zeros, which no operand holds."""
    renames: ClassVar[bool] = False
    """Whether it is its one operand under other axes: added, repeated, merged, split, exchanged."""
    reshapes: ClassVar[bool] = False
    """Whether it renames by keeping all elements in row-major order, under another shape."""
    broadcasts: ClassVar[bool] = False
    """Whether it renames by repeating its operand along new leading axes and axes of extent 1."""
    concatenates: ClassVar[bool] = False
    """Whether the value is its operands after one another along a feature axis."""
    reduces: ClassVar[bool] = False
    """Whether it combines the elements along axes of its one operand by `combine`."""
    carries: ClassVar[bool] = False
    """Whether it is left by a loop that carries a value from edge to edge, or along an axis."""
    combine: ClassVar[str | None] = None
    """What reduces two elements, or carries on by one, if it is no more than a pointwise op."""
    finds: ClassVar[str | None] = None
    """Of a comparison with the extremum of many values, the kind of that: it holds for few."""
    divides: ClassVar[bool] = False
    """Whether it is a quotient or a remainder: of integers these are other code than of floats."""
    stands_alone: ClassVar[bool] = False
    """Whether it is a step of its own on values of nodes: what it reads serves many of them."""
    exchanges: ClassVar[bool] = False
    """Whether exchanging two operands transposes the value."""
    defers: ClassVar[bool] = False
    """Whether it is a call on what is no part of the program: a plan gives each run its own."""
    signs: ClassVar[tuple[int, ...]] = ()
    """Of a sum of the operands: 1 for each that is added, -1 for each that is taken away."""
    trends: ClassVar[tuple[int, ...]] = ()
    """Of a monotone op: 1 for each operand that it never falls with, -1 where it never rises."""
    exact: ClassVar[bool] = False
    """Whether a pointwise op's result needs no rounding to the operands' 16-bit type."""
    packs: ClassVar[bool] = False
    """Whether the value is its operand, a condition, as bits: gradients read it instead."""
    unpacks: ClassVar[bool] = False
    """Whether the value is the condition whose bits its operand is."""
    widens: ClassVar[bool] = True
    """Of whole tensors: whether 16-bit floats are given to it as float32."""
    cost: ClassVar[int] = 1
    """Relative work per element."""

    @property
    def is_uniform(self) -> bool:
        """Whether the value is the same for every entity, whatever the operands are."""
        return self.origin in (Origin.NUMBER, Origin.GLOBAL)

    @property
    def is_read(self) -> bool:
        """Whether entities read the value, and compute nothing."""
        return self.origin in (Origin.END, Origin.GLOBAL, Origin.ARGUMENT)

    @property
    def is_view(self) -> bool:
        """Whether kernels read the operand under another shape, and move nothing."""
        return self.reshapes or self.broadcasts

    @property
    def selects(self) -> bool:
        """Whether what it reduces to is one of the elements, which have an order then."""
        return False

    @property
    def collects(self) -> bool:
        """Whether the value is made from those of many entities at once, or for many at once."""
        gathered = (Origin.ROW, Origin.TOTAL, Origin.OUTER)
        return self.stands_alone or self.origin in gathered

    def __init_subclass__(cls, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Given to the class itself, or dataclasses would make another function for every op.
        if "__hash__" not in cls.__dict__:
            cls.__hash__ = Op.__hash__  # type: ignore[method-assign]
        if name is None:
            return
        assert name not in REGISTRY, f"op {name!r} is already {REGISTRY[name]}"
        cls.name = name
        REGISTRY[name] = cls

    @cached_property
    def _hash(self) -> int:
        return hash((self.__class__, *self.attributes().values()))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return self.attributes()  # without the hash: another process has others

    def __call__(self, *inputs: Node, where: str | None = None) -> Node:
        assert self.arity is None or len(inputs) == self.arity, f"{self} takes {self.arity}"
        folded = self.fold(inputs)
        if folded is not None:
            return folded
        return intern(self, inputs, self.infer(*(n.type for n in inputs)), where)

    def fold(self, inputs: tuple[Node, ...]) -> Node | None:
        """An existing or simpler node with the same value and bits, or None."""
        return None

    def inner_extent(self, *types: Type) -> int:
        """Of a product with a matrix, how many products each element sums; 0 of other ops."""
        return 0

    def expand(self, *inputs: Node) -> Node | None:
        """The same value in simpler ops, which plans are made of; None for an op that stays."""
        return None

    def infer(self, *types: Type) -> Type:
        raise NotImplementedError

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        raise NotImplementedError(f"{self.name} has no derivative")

    def vjp_of(
        self, wanted: Sequence[bool], ct: Node, out: Node, *inputs: Node
    ) -> Sequence[Node | None]:
        """As `vjp`, where only the terms of the inputs that are wanted are used."""
        return self.vjp(ct, out, *inputs)

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        """Terms whose sum is the output's tangent; empty when it is zero."""
        raise NotImplementedError(f"{self.name} has no forward derivative")

    def attributes(self) -> dict[str, Any]:
        """Field values by name: what the IR carries."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclass(frozen=True)
class Pointwise(Op):
    """Element by element on operands of one shape, space and dtype; subclasses give `lower`.

    Facts: `of_floats` says that kernels compute it on floats only; `domain` is where samples are
    drawn from.
    """

    pointwise = True
    batches = True
    of_floats: ClassVar[bool] = False
    domain: ClassVar[tuple[float, float]] = (-3.0, 3.0)

    def infer(self, *types: Type) -> Type:
        first = types[0]
        assert all(t == first for t in types), f"{self.name} on {types}"
        return first

    def lower(self, b: Arithmetic, *args: Value) -> Value:
        raise NotImplementedError

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        """Pointwise derivatives are diagonal: the cotangent rule per operand serves tangents."""
        parts = [
            self.vjp(tangent, out, *inputs)[position]
            for position, tangent in enumerate(tangents)
            if tangent is not None
        ]
        return [part for part in parts if part is not None]


@dataclass(frozen=True)
class Linear(Op):
    """Linear in its one operand: the tangent goes through the op itself."""

    arity = 1

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        return [] if tangents[0] is None else [self(tangents[0])]
