"""Launches without torch, against a library that stands for NVIDIA's driver."""

import ctypes
import struct

import pytest

from tiga.backends.triton.device import Device
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.loaded import DeviceKernel, Kernel
from tiga.backends.triton.machine import Gpu
from tiga.backends.triton.row_moves import move_rows
from tiga.backends.triton.writer import KernelSource, Parameter
from tiga.errors import InvalidType, OutOfBudget, UnsupportedByBackend
from tiga.runtime.driver import Driver
from tiga.runtime.functions import FreeLaunch, Function, Slots, launcher

SHARED = 200_000
"""Bytes of shared memory that a block can have."""


class Library:
    """Answers 0 to everything, writes down launches, and fails where it is told to."""

    def __init__(self, count: int = 0) -> None:
        self.count, self.calls, self.launches = count, [], []
        self.answers: dict[str, list[int]] = {}

    def __getattr__(self, name: str):
        def call(*arguments) -> int:
            self.calls.append(name)
            if name == "cuLaunchKernel":
                self.launches.append(self._read(arguments))
            if name == "cuGetErrorString":
                arguments[1]._obj.value = b"its reason"
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = SHARED
            answers = self.answers.get(name)
            return answers.pop(0) if answers else 0

        return call

    def _read(self, arguments) -> tuple:
        _, *sizes, stream, table, extra = arguments
        assert extra is None
        pointers = (ctypes.c_uint64 * self.count).from_address(table.value)
        taken = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        return [s.value for s in sizes], stream.value, taken


@pytest.fixture
def library() -> Library:
    return Library(3)


@pytest.fixture
def function(library) -> Function:
    return Function(Driver(library, 0), b"machine code", "rows", 128, 1024)


def test_arguments_are_read_from_their_slots(library, function):
    slots = Slots(2, [7, -1])
    launch = launcher(function, (5, 2, 1), slots, slots.table([1, 2, 3]))
    for addresses in ((1000, 2000), (3000, 2**63)):
        slots.fill(addresses)
        launch(ctypes.c_void_p(77))
        sizes, stream, taken = library.launches[-1]
        assert sizes == [5, 2, 1, 128, 1, 1, 1024]
        assert stream == 77
        assert taken == [addresses[1], 7, 2**64 - 1]


def test_one_kernel_goes_over_any_grid_with_any_arguments(library, function):
    launch = FreeLaunch(function, 2, 1)
    for grid, arguments in (((5, 2, 1), (1000, -1)), ((6, 1, 1), (2000, 2**63))):
        launch.run(ctypes.c_void_p(77), grid, arguments)
        sizes, stream, taken = library.launches[-1]
        assert sizes == [*grid, 128, 1, 1, 1024]
        assert stream == 77
        assert taken == [arguments[0], arguments[1] % 2**64, 0]
    library.answers["cuLaunchKernel"] = [201, 700]
    with pytest.raises(UnsupportedByBackend, match="to launch rows: its reason"):
        launch.run(ctypes.c_void_p(77), (1, 1, 1), (0, 0))


def test_a_thread_without_a_context_gets_one(library, function):
    slots = Slots(0, [1, 2, 3])
    launch = launcher(function, (1, 1, 1), slots, slots.table([0, 1, 2]))
    library.answers["cuLaunchKernel"] = [201]
    library.calls.clear()
    launch(ctypes.c_void_p(0))
    assert library.calls == ["cuLaunchKernel", "cuCtxSetCurrent", "cuLaunchKernel"]


def test_what_the_driver_refuses_is_raised_with_its_reason(library, function):
    slots = Slots(0, [1, 2, 3])
    launch = launcher(function, (1, 1, 1), slots, slots.table([0, 1, 2]))
    library.answers["cuLaunchKernel"] = [700]
    with pytest.raises(UnsupportedByBackend, match=r"to launch rows: its reason \(code 700\)"):
        launch(ctypes.c_void_p(0))


def test_no_memory_left_is_a_refusal_of_its_own(library):
    library.answers["cuMemAllocAsync"] = [2]
    with pytest.raises(OutOfBudget, match="cuMemAllocAsync"):
        Driver(library, 0).allocate_on(0, 2**40)


def test_much_shared_memory_is_asked_for(library):
    Function(Driver(library, 0), b"machine code", "rows", 128, 100_000)
    assert "cuFuncSetAttribute" in library.calls


def test_more_shared_memory_than_there_is_is_refused(library):
    with pytest.raises(UnsupportedByBackend, match="needs 300000 bytes of shared memory"):
        Function(Driver(library, 0), b"machine code", "rows", 128, 300_000)


def test_numbers_become_slots():
    pytest.importorskip("triton")
    from tiga.backends.triton.device import slot_of

    assert slot_of("*fp32", 2**40) == 2**40
    assert struct.unpack("<f", struct.pack("<I", slot_of("fp32", 0.5))) == (0.5,)
    assert struct.unpack("<d", struct.pack("<Q", slot_of("fp64", 0.1))) == (0.1,)
    with pytest.raises(InvalidType, match="i32"):
        slot_of("i32", 0.5)


def test_hidden_parameters_are_counted_in_the_machine_code():
    pytest.importorskip("triton")
    from tests.gpu import programs
    from tiga.backends.triton.compiled import compile_kernel
    from tiga.backends.triton.executable import compile_program
    from tiga.backends.triton.loaded import hidden_parameters
    from tiga.types import float32

    for source in compile_program(programs.MAKERS["total"](float32).program).sources():
        compiled = compile_kernel(source, 90, [p.type.startswith("*") for p in source.parameters])
        assert hidden_parameters(compiled, source) == 2


@pytest.fixture
def kernel(function) -> DeviceKernel:
    parameters = tuple(Parameter(name, "*i64", name) for name in ("x", "y"))
    source = KernelSource("rows", "", parameters, (), Tile(1, 1, 4))
    return DeviceKernel(source, None, function, hidden=1)


def without_a_gpu(kind: type[Device], kernel: DeviceKernel, monkeypatch) -> Device:
    monkeypatch.setattr(kind, "__init__", lambda self: None)
    monkeypatch.setattr(kind, "kernel", lambda self, source: kernel)
    return kind()


def test_a_bound_launch_takes_new_addresses_between_fixed_arguments(library, kernel, monkeypatch):
    gpu = without_a_gpu(Gpu, kernel, monkeypatch)
    launch = gpu.bind(kernel.source, (3, 1, 1), [7, None])
    for address in (1000, 2000):
        launch([address])
        sizes, _, taken = library.launches[-1]
        assert sizes[:3] == [3, 1, 1]
        assert taken == [7, address, 0]


def test_a_device_launches_kernels_with_arguments_in_order(library, kernel, monkeypatch):
    device = without_a_gpu(Device, kernel, monkeypatch)
    device.launch(kernel, (4, 1, 1), [1000, 2000])
    sizes, _, taken = library.launches[-1]
    assert sizes[:3] == [4, 1, 1]
    assert taken == [1000, 2000, 0]


def test_rows_are_moved_by_a_launch_of_their_kernel(library, kernel, monkeypatch):
    library.count = 5
    monkeypatch.setattr(Kernel, "form", lambda self, *where: kernel)
    move_rows((1024, 2048, 4096), 10, 64, 8, device=0, capability=90, stream=77)
    _, stream, taken = library.launches[-1]
    assert stream == 77
    assert taken == [1024, 2048, 4096, 10, 0]
