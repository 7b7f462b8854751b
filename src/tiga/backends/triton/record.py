"""A plan bound to a topology: which kernels run with what, so that a run only fills in addresses.

What a run gives, its inputs and outputs, comes first in a flat list of addresses; pieces of one
arena (values between steps, scratch) follow, then all that the topology fixes. A launch takes its
arguments from that list: on a GPU from the slots that hold it.
"""

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any

from tiga.backends.triton.ahead import Wanted, compile_ahead
from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.library import call_library
from tiga.backends.triton.loaded import Interpreted
from tiga.backends.triton.preparation import Launch, Prepared, Run, Scratch
from tiga.passes.rows import LibraryCall
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.functions import Slots, launcher, stream_handle
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import DType

PIECE_ALIGNMENT = 512
"""Bytes to which torch's allocator aligns as well."""


def library_of(array: Any) -> Callable[..., None]:
    """What computes dense products of node values in arrays of this kind."""
    if not isinstance(array, DeviceArray):
        return call_library
    from tiga.backends.triton.native_library import call_library as call_native

    return call_native


@dataclass(frozen=True)
class Piece:
    """A part of the arena: `count` values from byte `offset`."""

    offset: int
    count: int
    dtype: DType


@dataclass(slots=True)
class Frame:
    """What actions of one run read: given arrays, the arena (None if empty), the addresses of
    both, and the stream."""

    given: Sequence[Any]
    arena: Any
    addresses: Sequence[int]
    stream: ctypes.c_void_p


Action = Callable[[Frame], None]


@dataclass(frozen=True)
class DeviceAction:
    """A kernel on a GPU: its arguments are in the record's slots."""

    launch: Callable[[ctypes.c_void_p], None]

    def __call__(self, frame: Frame) -> None:
        self.launch(frame.stream)


@dataclass(frozen=True)
class InterpretedAction:
    """An interpreted kernel, with its arguments: numbers among the addresses of a run, or fixed."""

    kernel: Interpreted
    grid: tuple[int, int, int]
    places: tuple[int, ...]
    fixed: Sequence[int]

    def __call__(self, frame: Frame) -> None:
        known = (*frame.addresses, *self.fixed)
        self.kernel.run(self.grid, [known[place] for place in self.places])


@dataclass(frozen=True)
class ZeroAction:
    """Clear a piece of the arena."""

    platform: Platform
    piece: Piece

    def __call__(self, frame: Frame) -> None:
        nbytes = self.piece.count * self.piece.dtype.itemsize
        self.platform.zero(frame.arena, self.piece.offset, nbytes)


@dataclass(frozen=True)
class LibraryAction:
    """A library call; operands are numbers of given arrays, or pieces."""

    platform: Platform
    node: Node
    operands: tuple[int | Piece, ...]

    def __call__(self, frame: Frame) -> None:
        arrays = [
            frame.given[o]
            if isinstance(o, int)
            else self.platform.view(frame.arena, o.offset, o.count, o.dtype)
            for o in self.operands
        ]
        library_of(arrays[-1])(self.node, arrays[:-1], arrays[-1])


@dataclass(frozen=True)
class Record:
    """All launches of a plan on a topology, for arrays of these alignments on one device.

    `slots` hold the arguments of kernels on a GPU; `keep` what the fixed ones point to.
    """

    pieces: tuple[Piece, ...]
    nbytes: int
    slots: Slots
    actions: tuple[Action, ...]
    platform: Platform
    keep: tuple[Any, ...]

    @cached_property
    def launches(self) -> tuple[Callable[[ctypes.c_void_p], None], ...] | None:
        """The launches, where there is nothing else to do and they run on a GPU."""
        if not all(isinstance(action, DeviceAction) for action in self.actions):
            return None
        return tuple(action.launch for action in self.actions)  # type: ignore[attr-defined]

    @cached_property
    def _arena(self) -> Callable[[], Any]:
        return self.platform.arenas(self.nbytes)

    def launch(self, addresses: list[int], stream: int) -> None:
        """Launch everything, where `launches` is all there is, on the record's device, which is the
        current one. `addresses` are those of the given tensors."""
        launches, handle = self.launches, stream_handle(stream)
        assert launches is not None
        if self.nbytes:
            # The allocator hands it to nobody else on this stream before the kernels are done.
            arena = self._arena()
            base = self.platform.address(arena)
            addresses += [base + piece.offset for piece in self.pieces]
        with self.slots.lock:
            self.slots.fill(addresses)
            for launch in launches:
                launch(handle)

    def bind(self, given: Sequence[Any], addresses: Sequence[int], stream: int) -> Frame:
        """A frame for these arrays and their addresses, with memory for what lies between."""
        if not self.nbytes:
            return Frame(given, None, addresses, ctypes.c_void_p(stream))
        arena = self.platform.arena(self.nbytes)
        base = self.platform.address(arena)
        places = (*addresses, *(base + piece.offset for piece in self.pieces))
        return Frame(given, arena, places, ctypes.c_void_p(stream))

    def play(self, frame: Frame) -> None:
        """Launch everything; the record's device is the current one."""
        if not self.platform.is_gpu:
            for action in self.actions:
                action(frame)
            return
        # Kernels take their arguments when they are launched: threads that share a record take
        # turns until then.
        with self.slots.lock:
            self.slots.fill(frame.addresses)
            for action in self.actions:
                action(frame)


def is_aligned(addresses: Sequence[Any]) -> bool:
    """Whether all addresses are multiples of the widest access."""
    return reduce(or_, addresses, 0) % ALIGNMENT == 0


Waiting = tuple[Launch, Sequence[int], tuple[bool, ...]]
"""A launch with the places of its arguments, and which of them are aligned."""

FIXED = -1
"""The place of what is fixed, counted down, until it is known how many addresses come before."""


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
    actions: list[Action | Waiting] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
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
        numbers = self.fixed if self.run.platform.is_gpu else ()
        slots = Slots(self.count + len(self.pieces), numbers)
        if self.run.platform.is_gpu:
            compile_ahead(self.wanted, self.run.platform.capability)
        actions = tuple(
            self._launched(*one, slots) if isinstance(one, tuple) else one for one in self.actions
        )
        return Record(
            tuple(self.pieces), self.nbytes, slots, actions, self.run.platform, tuple(self.keep)
        )

    def _place(self, key: Hashable, count: int, dtype: DType, start: int | None = None) -> int:
        """Take a piece; the bytes after it."""
        offset = self.nbytes if start is None else start
        self.places[key] = len(self.pieces)
        self.pieces.append(Piece(offset, count, dtype))
        # An empty piece has an address as well.
        nbytes = max(count, 1) * dtype.itemsize
        end = offset + -(-nbytes // PIECE_ALIGNMENT) * PIECE_ALIGNMENT
        self.nbytes = max(self.nbytes, end)
        return end

    def _library(self, node: Node) -> None:
        operands = tuple(self._operand(n) for n in (*node.inputs, node))
        self.actions.append(LibraryAction(self.run.platform, node, operands))

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
                self.actions.append(ZeroAction(self.run.platform, self.pieces[-1]))

    def _launch(self, launch: Launch) -> None:
        first, aligned = len(self.fixed), list(launch.aligned)
        self.fixed += launch.fixed
        self.keep += launch.held
        places = [FIXED - place for place in range(first, len(self.fixed))]
        for position, key in launch.kernel.given:
            places[position], aligned[position] = self._source(key)
        wanted = launch.kernel, tuple(aligned)
        self.wanted.append(wanted)
        self.actions.append((launch, places, wanted[1]))

    def _launched(
        self, launch: Launch, places: Sequence[int], aligned: tuple[bool, ...], slots: Slots
    ) -> Action:
        """The action of a launch, once the places of all arguments are known."""
        platform, after = self.run.platform, self.count + len(self.pieces)
        form = launch.kernel.form(platform.index, platform.capability, aligned)
        where = [place if place >= 0 else after + FIXED - place for place in places]
        if isinstance(form, Interpreted):
            return InterpretedAction(form, launch.grid, tuple(where), self.fixed)
        # Scratch that Triton might ask for is not there: any address will do.
        where += [0] * form.hidden
        return DeviceAction(launcher(form.function, launch.grid, slots, where))

    def _source(self, key: Any) -> tuple[int, bool]:
        """The place of the argument that a run gives for a key, and whether it is aligned."""
        kind, *rest = key
        if kind == "array" and rest[0] in self.given:
            number = self.given[rest[0]]
            return number, self.aligned[number]
        if key in self.places:
            return self.count + self.places[key], True
        assert kind == "degree", f"nothing bound to {key}"
        row_ptr = self.run.walk(*rest).row_ptr
        address = self.run.platform.address(row_ptr)
        self.keep.append(row_ptr)
        self.fixed.append(address)
        return FIXED - (len(self.fixed) - 1), address % ALIGNMENT == 0
