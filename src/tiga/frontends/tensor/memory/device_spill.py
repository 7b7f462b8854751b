"""Blocks of a GPU's memory that leave it: for pinned memory of the host, or for the spill file."""

import weakref
from typing import Any

import numpy as np

from tiga.errors import OutOfBudget
from tiga.frontends.tensor.gpu_arrays import room
from tiga.frontends.tensor.memory.absent import Backing, Spilled
from tiga.runtime.device_array import DeviceMemory, Machine
from tiga.runtime.scope import Extent, Scope, active

PINNED = "host-pinned"


def store(memory: DeviceMemory, scope: Scope) -> Backing:
    """A copy of a block's bytes outside of the GPU's memory.

    Raises:
        OutOfBudget: neither pinned memory with a budget nor the disk holds it.
        OSError: the disk is full.
    """
    what = f"a spilled tensor of {memory.nbytes} bytes"
    if scope.accounts[PINNED].budget is not None:
        try:
            return OnHost(memory, scope, what)
        except OutOfBudget:
            pass  # the disk is next
    host = np.empty(memory.nbytes, np.uint8)
    memory.machine.copy_out(host.ctypes.data, memory.address, host.nbytes)
    memory.machine.synchronize()
    return OnDisk(memory.machine, scope.spill(host.data, what))


def _room_for(nbytes: int, machine: Machine) -> DeviceMemory:
    """Memory that a block comes back to, charged to the scope in force."""
    made = room(machine.index).like((nbytes,), np.uint8)
    return made.memory


class OnDisk:
    """A block's bytes in a spill file."""

    kind = Spilled.kind
    tier = "device"

    def __init__(self, machine: Machine, extent: Extent) -> None:
        self._machine, self._extent = machine, extent

    def room(self) -> DeviceMemory:
        return _room_for(self._extent.nbytes, self._machine)

    def bring(self, room: DeviceMemory) -> DeviceMemory:
        host = self._extent.read()
        self._machine.copy_in(room.address, host.ctypes.data, host.nbytes)
        return room

    def close(self) -> None:
        self._extent.close()


class OnHost:
    """A block's bytes in pinned memory of the host, which the GPU copies from and to directly."""

    kind = "pinned-spill"
    tier = "device"

    def __init__(self, memory: DeviceMemory, scope: Scope, what: str) -> None:
        self._machine, self._nbytes = memory.machine, memory.nbytes
        account = scope.accounts[PINNED]
        ticket = account.charge(self._nbytes, what)
        try:
            self._address = self._machine.allocate_pinned(self._nbytes)
        except BaseException:
            account.release(ticket)
            raise
        self._free = weakref.finalize(self, _free, self._machine, self._address, account, ticket)
        self._free.atexit = False
        # The block is freed in order with the copy: nothing waits here.
        self._machine.copy_out(self._address, memory.address, self._nbytes)
        scope.counters.bytes_spilled += self._nbytes

    def room(self) -> DeviceMemory:
        return _room_for(self._nbytes, self._machine)

    def bring(self, room: DeviceMemory) -> DeviceMemory:
        self._machine.copy_in(room.address, self._address, self._nbytes)
        scope = active()
        if scope is not None:
            scope.counters.restores += 1
            scope.counters.bytes_restored += self._nbytes
        return room

    def close(self) -> None:
        self._free()


def _free(machine: Any, address: int, account: Any, ticket: int) -> None:
    machine.synchronize()  # a copy may be under way
    machine.free_pinned(address)
    account.release(ticket)
