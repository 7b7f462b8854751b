"""A GPU without torch as programs over graphs need it: the driver's memory, and its streams."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np

from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, index_array
from tiga.backends.triton.machine import Gpu, Interpreter
from tiga.runtime.device_array import DeviceArray, DeviceMemory, upload
from tiga.runtime.host_arrays import side_by_side
from tiga.runtime.scope import active
from tiga.types import DType

REPEATS = 10
"""Launches that are timed."""

_ALREADY = nullcontext()


class Current:
    """Makes a device the calling thread's current one."""

    def __init__(self, machine: Gpu) -> None:
        self._activate = machine.driver.activate

    def __enter__(self) -> None:
        self._activate()

    def __exit__(self, *error: object) -> None:
        """Whoever needs another device makes that current."""


@dataclass(frozen=True, eq=False)
class NativePlatform:
    """A GPU, or the interpreter in its place; see `tiga.runtime.platform.Platform`."""

    on_machine: Gpu | Interpreter
    counts: bool = True
    """Whether arenas are charged to the scope in force; who charges them by name says False."""

    arrays = ARRAYS

    @cached_property
    def uncounted(self) -> "NativePlatform":
        """The same for who charges arenas."""
        return replace(self, counts=False)

    @cached_property
    def name(self) -> str:
        return f"cuda:{self.index} without torch"

    @cached_property
    def is_gpu(self) -> bool:
        return isinstance(self.on_machine, Gpu)

    @cached_property
    def index(self) -> int:
        return self.on_machine.index

    @cached_property
    def capability(self) -> int:
        return self.on_machine.capability

    @cached_property
    def _current(self) -> AbstractContextManager[Any]:
        return Current(self.on_machine) if isinstance(self.on_machine, Gpu) else _ALREADY

    def on(self) -> AbstractContextManager[Any]:
        return self._current

    def stream(self) -> int:
        return self.on_machine.stream

    def address(self, array: DeviceArray | DeviceMemory) -> int:
        return array.address

    def arena(self, nbytes: int) -> DeviceMemory:
        scope = active() if self.counts else None
        return Room(self.on_machine, scope).like((nbytes,), np.uint8).memory

    def arenas(self, nbytes: int) -> Callable[[], DeviceMemory]:
        return partial(self.arena, nbytes)

    def view(self, arena: DeviceMemory, offset: int, count: int, dtype: DType) -> DeviceArray:
        return DeviceArray(arena, (count,), dtype.numpy, None, arena.address + offset)

    def zero(self, arena: DeviceMemory, offset: int, nbytes: int) -> None:
        self.on_machine.zero(arena.address + offset, nbytes)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        self.on_machine.copy(target.address, source.address, source.nbytes)

    def constant(self, numbers: tuple[int, ...]) -> IndexArray:
        return _constant(self, numbers)

    def sent(self, host: np.ndarray) -> IndexArray:
        memory = DeviceMemory(self.on_machine, host.nbytes)
        return index_array(upload(host, self.on_machine, memory))

    def sent_together(self, hosts: Sequence[np.ndarray]) -> list[IndexArray]:
        block, places = side_by_side(hosts)
        there = self.sent(block)
        return [
            IndexArray(there.memory, host.shape, host.dtype, host.strides, there.address + place)
            for host, place in zip(hosts, places, strict=True)
        ]

    def owns(self, array: Any) -> bool:
        return isinstance(array, DeviceArray) and array.machine is self.on_machine

    def description(self) -> str:
        name = self.on_machine.driver.name() if isinstance(self.on_machine, Gpu) else "interpreter"
        return f"{name}, {version('triton')}, without torch"

    def may_wait(self) -> bool:
        return self.is_gpu

    def milliseconds(self, call: Callable[[], None]) -> float:
        """By the host's clock, each launch waited for."""
        times = []
        for _ in range(REPEATS + 1):
            self.on_machine.synchronize()
            start = perf_counter()
            call()
            self.on_machine.synchronize()
            times.append(perf_counter() - start)
        return 1e3 * min(times)


@lru_cache(maxsize=256)
def _constant(platform: NativePlatform, numbers: tuple[int, ...]) -> IndexArray:
    return platform.sent(np.array(numbers, np.int32))
