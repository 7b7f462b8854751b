"""A plan bound to a topology: which kernels run with what, so that a run only fills in addresses.

What a run gives, its inputs and outputs, comes first in a flat list of addresses; pieces of one
arena (values between steps, scratch) follow, then all that the topology fixes. A launch picks its
arguments from that list.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import itemgetter, or_
from typing import Any

from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.launch import Launch, Prepared, RowStep, Run, Scratch
from tiga.backends.triton.library import call_library
from tiga.passes.rows import LibraryCall
from tiga.runtime import cuda
from tiga.trace.node import Node
from tiga.types import DType

PIECE_ALIGNMENT = 512
"""Bytes to which torch's allocator aligns as well."""


@dataclass(frozen=True)
class Piece:
    """A part of the arena: `count` values from byte `offset`."""

    offset: int
    count: int
    dtype: DType


@dataclass
class Frame:
    """What actions of one run read: given tensors, the arena (None if empty), all addresses."""

    given: Sequence[Any]
    arena: Any
    addresses: Sequence[Any]
    stream: int


Action = Callable[[Frame], None]


@dataclass(frozen=True)
class LaunchAction:
    """A kernel with the places of its arguments in the list of addresses."""

    run: Callable[..., None]
    grid: tuple[int, int, int]
    function: Any
    metadata: Any
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]

    def __call__(self, frame: Frame) -> None:
        arguments = self.pick(frame.addresses)
        self.run(
            *self.grid, frame.stream, self.function, self.metadata, None, None, None, *arguments
        )


@dataclass(frozen=True)
class ZeroAction:
    """Clear a piece of the arena."""

    piece: Piece

    def __call__(self, frame: Frame) -> None:
        cuda.view(frame.arena, self.piece.offset, self.piece.count, self.piece.dtype).zero_()


@dataclass(frozen=True)
class LibraryAction:
    """A library call; operands are numbers of given tensors, or pieces."""

    node: Node
    operands: tuple[int | Piece, ...]

    def __call__(self, frame: Frame) -> None:
        tensors = [
            frame.given[o]
            if isinstance(o, int)
            else cuda.view(frame.arena, o.offset, o.count, o.dtype)
            for o in self.operands
        ]
        call_library(self.node, tensors[:-1], tensors[-1])


@dataclass(frozen=True)
class Record:
    """All launches of a plan on a topology, for tensors of these alignments on one device.

    `keep` holds what the fixed addresses point to.
    """

    pieces: tuple[Piece, ...]
    nbytes: int
    fixed: tuple[Any, ...]
    actions: tuple[Action, ...]
    device: Any
    keep: tuple[Any, ...]

    def bind(self, given: Sequence[Any], addresses: Sequence[Any], stream: int) -> Frame:
        """A frame for these tensors and their addresses, with memory for what lies between."""
        if not self.nbytes:
            return Frame(given, None, (*addresses, *self.fixed), stream)
        arena = cuda.arena(self.nbytes, self.device)
        return Frame(given, arena, (*addresses, *self._places(arena), *self.fixed), stream)

    def _places(self, arena: Any) -> list[Any]:
        base = cuda.address(arena)
        if isinstance(base, int):
            return [base + piece.offset for piece in self.pieces]
        return [cuda.view(arena, p.offset, p.count, p.dtype) for p in self.pieces]

    def play(self, frame: Frame) -> None:
        """Launch everything."""
        for action in self.actions:
            action(frame)


def is_aligned(addresses: Sequence[Any]) -> bool:
    """Whether all addresses are multiples of the widest access."""
    return reduce(or_, addresses, 0) % ALIGNMENT == 0


def picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Picks the items at these indices, as a tuple however many they are."""
    if len(indices) == 1:
        (index,) = indices
        return lambda items: (items[index],)
    return itemgetter(*indices)


@dataclass
class Recorder:
    """Binds the steps of a plan to the topology of a run.

    `given` numbers the `count` tensors that a run is given, `aligned` says how they lie.
    """

    run: Run
    given: Mapping[Node, int]
    count: int
    aligned: Sequence[bool]
    pieces: list[Piece] = field(default_factory=list)
    places: dict[Hashable, int] = field(default_factory=dict)
    fixed: list[Any] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    actions: list[Callable[[], Action]] = field(default_factory=list)
    base: int = 0
    nbytes: int = 0

    def record(self, steps: Sequence[RowStep | LibraryCall], between: Sequence[Node]) -> Record:
        """The record of these steps; `between` are values that one leaves for another."""
        for node in between:
            count = self.run.extents[node.type.space] * node.type.size
            self._place(("array", node), count, node.type.dtype)
        self.base = self.nbytes
        for step in steps:
            if isinstance(step, LibraryCall):
                self._library(step.node)
            else:
                self._launches(step.prepared(self.run))
        # The number of pieces, and with it the place of what is fixed, is known only now.
        actions = tuple(make() for make in self.actions)
        return Record(
            tuple(self.pieces), self.nbytes, tuple(self.fixed), actions, self.run.device,
            tuple(self.keep),
        )  # fmt: skip

    def _place(self, key: Hashable, count: int, dtype: DType, start: int | None = None) -> int:
        """Take a piece; the bytes after it."""
        offset = self.nbytes if start is None else start
        self.places[key] = len(self.pieces)
        self.pieces.append(Piece(offset, count, dtype))
        end = offset + -(-count * dtype.itemsize // PIECE_ALIGNMENT) * PIECE_ALIGNMENT
        self.nbytes = max(self.nbytes, end)
        return end

    def _library(self, node: Node) -> None:
        operands = tuple(self._operand(n) for n in (*node.inputs, node))
        self.actions.append(lambda: LibraryAction(node, operands))

    def _operand(self, node: Node) -> int | Piece:
        if node in self.given:
            return self.given[node]
        return self.pieces[self.places["array", node]]

    def _launches(self, prepared: Prepared) -> None:
        self._scratch(prepared.scratch)
        for launch in prepared.launches:
            self._launch(launch)

    def _scratch(self, wanted: Sequence[Scratch]) -> None:
        """Scratch of a step lies where that of other steps does: steps run one after another."""
        start = self.base
        for scratch in wanted:
            start = self._place(scratch.key, scratch.count, scratch.dtype, start)
            if scratch.zero:
                self.actions.append(partial(ZeroAction, self.pieces[-1]))

    def _launch(self, launch: Launch) -> None:
        aligned, sources = list(launch.aligned), list(map(self._fix, launch.arguments))
        for position, key in launch.slots:
            sources[position], aligned[position] = self._source(key)
        form = launch.kernel.form(self.run.device, self.run.capability, tuple(aligned))

        def made() -> Action:
            starts = {"given": 0, "piece": self.count, "fixed": self.count + len(self.pieces)}
            pick = picker([starts[kind] + number for kind, number in sources])
            return LaunchAction(form.run, launch.grid, form.function, form.packed_metadata, pick)

        self.actions.append(made)

    def _source(self, key: Any) -> tuple[tuple[str, int], bool]:
        """Where the argument of a slot comes from, and whether it is aligned."""
        kind, *rest = key
        if kind == "array" and rest[0] in self.given:
            number = self.given[rest[0]]
            return ("given", number), self.aligned[number]
        if key in self.places:
            return ("piece", self.places[key]), True
        assert kind == "degree", f"nothing bound to {key}"
        row_ptr = self.run.walk(*rest).row_ptr
        return self._fix(row_ptr), row_ptr.data_ptr() % ALIGNMENT == 0

    def _fix(self, argument: Any) -> tuple[str, int]:
        if hasattr(argument, "data_ptr"):
            self.keep.append(argument)
            argument = cuda.address(argument)
        self.fixed.append(argument)
        return "fixed", len(self.fixed) - 1
