"""A plan bound to a topology: which kernels run with what, so that a run only fills in addresses.

What a run gives, its inputs and outputs, comes first in a flat list of addresses; pieces of one
arena (values between steps, scratch) follow, then all that the topology fixes. A launch takes its
arguments from that list: on a GPU from the slots that hold it.
"""

import ctypes
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np

from tiga.backends.triton.ahead import Wanted, compile_ahead
from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.library import call_library
from tiga.backends.triton.loaded import DeviceKernel, Interpreted
from tiga.backends.triton.preparation import Launch, Run, Scratch
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


@dataclass(frozen=True, eq=False)
class Wiring:
    """Which kernels a plan launches, and where their arguments are: the same on all topologies
    that these kernels serve, so that a new one takes little.

    `places` has those of all kernels one after another, from `starts` on. `row_pointers` names the
    walks of which kernels read the row pointers; these come last among what is fixed.
    """

    forms: tuple[DeviceKernel | Interpreted, ...]
    places: np.ndarray
    starts: tuple[int, ...]
    row_pointers: tuple[tuple[Any, ...], ...]


@dataclass
class Recorder:
    """Binds the steps of a plan to the topology of a run.

    `given` numbers the `count` tensors that a run is given, `aligned` says how they lie.
    """

    run: Run
    given: Mapping[Node, int]
    count: int
    aligned: Sequence[bool]
    known: dict[Hashable, Wiring]
    pieces: list[Piece] = field(default_factory=list)
    places: dict[Hashable, int] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    actions: list[Action | Launch] = field(default_factory=list)
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
                prepared = step.prepared(self.run)
                self._scratch(prepared.scratch)
                self.actions += prepared.launches
        slots, actions = self._launched()
        platform = self.run.platform
        return Record(tuple(self.pieces), self.nbytes, slots, actions, platform, tuple(self.keep))

    def _launched(self) -> tuple[Slots, tuple[Action, ...]]:
        """The slots of all arguments, and the actions with launches bound to them."""
        launches = [action for action in self.actions if isinstance(action, Launch)]
        wiring, fixed = self._wiring(launches), list[int]()
        for launch in launches:
            fixed += launch.fixed
            self.keep += launch.held
        for walk in wiring.row_pointers:
            row_ptr = self.run.walk(*walk).row_ptr
            fixed.append(self.run.platform.address(row_ptr))
            self.keep.append(row_ptr)
        slots = Slots(self.count + len(self.pieces), fixed if self.run.platform.is_gpu else ())
        made = self._bound(launches, wiring, slots, fixed)
        return slots, tuple(next(made) if isinstance(a, Launch) else a for a in self.actions)

    def _bound(
        self, launches: Sequence[Launch], wiring: Wiring, slots: Slots, fixed: Sequence[int]
    ) -> Iterator[Action]:
        """The actions of launches."""
        tables = slots.tables(wiring.places, wiring.starts)
        for launch, form, table, start in zip(
            launches, wiring.forms, tables, wiring.starts, strict=True
        ):
            if isinstance(form, DeviceKernel):
                yield DeviceAction(launcher(form.function, launch.grid, slots, table))
            else:
                places = wiring.places[start : start + len(launch.fixed)].tolist()
                yield InterpretedAction(form, launch.grid, tuple(places), fixed)

    def _wiring(self, launches: Sequence[Launch]) -> Wiring:
        """How launches are wired; looked up where the same kernels were wired before."""
        kernels = tuple([(launch.kernel, launch.aligned) for launch in launches])
        key = self.run.platform, tuple(self.aligned), kernels, len(self.pieces)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._wired(launches)
        return found

    def _wired(self, launches: Sequence[Launch]) -> Wiring:
        """The wiring of launches, whose kernels are compiled side by side."""
        first = after = self.count + len(self.pieces)
        after += sum(len(launch.fixed) for launch in launches)
        places, starts, wanted = list[int](), list[int](), list[Wanted]()
        row_pointers: dict[tuple[Any, ...], int] = {}
        for launch in launches:
            own = list(range(first, first + len(launch.fixed)))
            aligned, first = list(launch.aligned), first + len(own)
            for position, (kind, *rest) in launch.kernel.given:
                if kind == "degree":
                    own[position] = after + row_pointers.setdefault(tuple(rest), len(row_pointers))
                else:
                    own[position], aligned[position] = self._source((kind, *rest))
            starts.append(len(places))
            places += own
            wanted.append((launch.kernel, tuple(aligned)))
        platform = self.run.platform
        if platform.is_gpu:
            compile_ahead(wanted, platform.capability)
        forms = [k.form(platform.index, platform.capability, aligned) for k, aligned in wanted]
        return _with_hidden(forms, places, starts, tuple(row_pointers))

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

    def _scratch(self, wanted: Sequence[Scratch]) -> None:
        """Scratch of a step lies where that of other steps does: steps run one after another."""
        start = self.base
        for scratch in wanted:
            start = self._place(scratch.key, scratch.count, scratch.dtype, start)
            if scratch.zero:
                self.actions.append(ZeroAction(self.run.platform, self.pieces[-1]))

    def _source(self, key: Any) -> tuple[int, bool]:
        """The place of the argument that a run gives for a key, and whether it is aligned."""
        if key[0] == "array" and key[1] in self.given:
            number = self.given[key[1]]
            return number, self.aligned[number]
        return self.count + self.places[key], True


def _with_hidden(
    forms: Sequence[DeviceKernel | Interpreted], places: list[int], starts: Sequence[int],
    row_pointers: tuple[tuple[Any, ...], ...],
) -> Wiring:  # fmt: skip
    """The wiring with the parameters that Triton adds: scratch that it might ask for is not there,
    any address will do."""
    found, begins = list[int](), list[int]()
    for form, start, stop in zip(forms, starts, [*starts[1:], len(places)], strict=True):
        begins.append(len(found))
        found += places[start:stop]
        found += [0] * (form.hidden if isinstance(form, DeviceKernel) else 0)
    return Wiring(tuple(forms), np.array(found, np.int64), tuple(begins), row_pointers)
