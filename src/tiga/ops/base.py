"""What an op is: one frozen class with its fields, inference, oracle, derivatives and lowering."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from tiga.ops.arithmetic import Arithmetic, Value
from tiga.ops.facts import Facts
from tiga.trace.node import Node, intern
from tiga.types import Type

REGISTRY: dict[str, type["Op"]] = {}
"""Every op class by name: what dialects, readers, conformance tests and docs are derived from."""


@dataclass(frozen=True)
class Op(Facts):
    """An operation. Fields of the dataclass are its attributes; calling it builds a node.

    Laws: `infer` raises for types the op cannot take; `reference` is the meaning, on numpy arrays
    whose first axis is the entity axis (of extent 1 when the space is global); `vjp` returns one
    cotangent or None per input, made of registered ops; `jvp` agrees with `vjp`. `holomorphic`
    says that on complex operands `vjp` multiplies by a complex derivative (`trace.autodiff`
    conjugates it).

    Compilers ask an op for its facts, not which one it is.
    """

    name: ClassVar[str]
    arity: ClassVar[int | None] = None
    holomorphic: ClassVar[bool] = True

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

    def by_rows(self, *types: Type) -> tuple[bool, ...] | None:
        """Of whole tensors: for each operand, whether a row of the value, along the first axis, is
        made of the same row of it (else of all of it); None where rows are made of other rows."""
        within = self.axis_fields and 0 not in self.axes_of_fields
        kept = self.reshapes and self.infer(*types).shape[:1] == types[0].shape[:1]
        return (True,) * len(types) if self.batches or within or kept else None

    @property
    def axes_of_fields(self) -> tuple[int, ...]:
        """The axes that its `axis_fields` number."""
        found = (getattr(self, name) for name in self.axis_fields)
        return tuple(chain.from_iterable((a,) if isinstance(a, int) else a for a in found))

    def shifted(self, by: int) -> "Op":
        """The same op where the axes of its operands have numbers that are `by` larger."""

        def moved(axes: Any) -> Any:
            return axes + by if isinstance(axes, int) else tuple(axis + by for axis in axes)

        return dataclasses.replace(self, **{n: moved(getattr(self, n)) for n in self.axis_fields})

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
