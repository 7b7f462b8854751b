"""Elements moved between arrays on a GPU: strided copies, and picks at given positions."""

import math
from dataclasses import dataclass
from functools import lru_cache

from tiga.backends.triton.dense.form import LIMIT
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.machine import Gpu, Interpreter
from tiga.backends.triton.writer import KernelSource, Parameter
from tiga.errors import InvalidIndex
from tiga.runtime.device_array import LAUNCH_ALIGNMENT, DeviceArray, DeviceMemory, download

BLOCK = 1024
_INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
"""Elements are moved as integers of their size."""


@dataclass(frozen=True)
class Axis:
    """One axis of a copy: its extent and both strides, in elements."""

    extent: int
    source: int
    target: int


def copy_into(target: DeviceArray, source: DeviceArray) -> None:
    """Copy elements of the same shape and dtype; strides may differ, and be 0 in the source."""
    if target.size == 0:
        return
    if target.is_contiguous and source.is_contiguous:
        target.machine.copy(target.address, source.address, target.nbytes)
        return
    axes, itemsize = _axes(target, source)
    places = [_place(array, itemsize) for array in (source, target)]
    wide = max(_span(axes, places)) >= LIMIT
    kernel = strided_copy(len(axes), _INTEGERS[itemsize], wide)
    count = math.prod(axis.extent for axis in axes)
    numbers = [count, places[0][1], places[1][1]]
    for axis in axes:
        numbers += [axis.extent, axis.source, axis.target]
    machine = _machine(target)
    launch = machine.bind(kernel, (-(-count // BLOCK), 1, 1), [None, None, *numbers])
    launch([places[0][0], places[1][0]])


def contiguous(array: DeviceArray) -> DeviceArray:
    """The array itself if kernels take it, else a copy."""
    if array.is_launchable:
        return array
    memory = DeviceMemory(array.machine, array.nbytes)
    made = DeviceArray(memory, array.shape, array.dtype)
    copy_into(made, array)
    return made


def _machine(array: DeviceArray) -> Gpu | Interpreter:
    machine = array.machine
    assert isinstance(machine, (Gpu, Interpreter))
    return machine


def _axes(target: DeviceArray, source: DeviceArray) -> tuple[list[Axis], int]:
    """The axes of a copy with neighbours joined, and the bytes of what it moves at a time."""
    itemsize = min(target.itemsize, 8)
    scale = target.itemsize // itemsize
    given = [
        Axis(n, s // itemsize, t // itemsize)
        for n, s, t in zip(target.shape, source.strides, target.strides, strict=True) if n != 1
    ]  # fmt: skip
    if scale > 1:
        given.append(Axis(scale, 1, 1))
    joined: list[Axis] = []
    for axis in given:
        last = joined[-1] if joined else None
        steps = axis.extent * axis.source, axis.extent * axis.target
        if last is not None and (last.source, last.target) == steps:
            joined[-1] = Axis(last.extent * axis.extent, axis.source, axis.target)
        else:
            joined.append(axis)
    return joined or [Axis(1, 1, 1)], itemsize


def _place(array: DeviceArray, itemsize: int) -> tuple[int, int]:
    """An address that kernels take, and how many elements after it the array starts."""
    rest = array.address % LAUNCH_ALIGNMENT
    return array.address - rest, rest // itemsize


def _span(axes: list[Axis], places: list[tuple[int, int]]) -> tuple[int, int]:
    ends = [sum((a.extent - 1) * abs(a.source) for a in axes) + places[0][1],
            sum((a.extent - 1) * abs(a.target) for a in axes) + places[1][1]]  # fmt: skip
    return max(ends[0], math.prod(a.extent for a in axes)), ends[1]


@lru_cache(maxsize=128)
def strided_copy(rank: int, integer: str, wide: bool) -> KernelSource:
    """`target[i, j, ...] = source[i, j, ...]` for strides that are arguments."""
    index = "i64" if wide else "i32"
    parameters = [Parameter("source", "*" + integer, "source"),
                  Parameter("target", "*" + integer, "target")]  # fmt: skip
    parameters += [Parameter(n, index, n) for n in ("count", "source_start", "target_start")]
    lines, froms, tos = [], ["source_start"], ["target_start"]
    for axis in range(rank):
        parameters += [Parameter(f"{n}{axis}", index, n) for n in ("extent", "step", "to")]
        froms.append(f"i{axis} * step{axis}")
        tos.append(f"i{axis} * to{axis}")
    for axis in reversed(range(1, rank)):
        lines += [f"i{axis} = rest % extent{axis}", f"rest = rest // extent{axis}"]
    program = "tl.program_id(0)" + (".to(tl.int64)" if wide else "")
    body = [
        f"element = {program} * {BLOCK} + tl.arange(0, {BLOCK})",
        "inside = element < count",
        "rest = element",
        *lines,
        "i0 = rest",
        f"value = tl.load(source + {' + '.join(froms)}, mask=inside)",
        f"tl.store(target + {' + '.join(tos)}, value, mask=inside)",
    ]
    names = ", ".join(p.name for p in parameters)
    text = "\n    ".join([f"@triton.jit\ndef copy({names}):", *body]) + "\n"
    return KernelSource("copy", text, tuple(parameters), (), Tile(1, BLOCK, 4))


@lru_cache(maxsize=64)
def pick(integer: str, position: str, along: bool) -> KernelSource:
    """`out[o, i, j] = x[o, index[i], j]`, with `along` `x[o, index[o, i, j], j]`.

    Negative positions count from the end; one that does not exist sets `wrong` and reads nothing.
    """
    place = "element" if along else "i"
    text = f"""@triton.jit
def pick(x, index, out, wrong, elements, count, inner, extent):
    element = tl.program_id(0).to(tl.int64) * {BLOCK} + tl.arange(0, {BLOCK})
    inside = element < elements
    j = element % inner
    i = (element // inner) % count
    o = element // (inner * count)
    given = tl.load(index + {place}, mask=inside, other=0).to(tl.int64)
    position = tl.where(given < 0, given + extent, given)
    exists = (position >= 0) & (position < extent)
    value = tl.load(x + (o * extent + position) * inner + j, mask=inside & exists, other=0)
    tl.store(out + element, value, mask=inside)
    tl.store(wrong + element * 0, 1, mask=inside & (exists == 0))
"""
    parameters = (
        Parameter("x", "*" + integer, "x"),
        Parameter("index", "*" + position, "index"),
        Parameter("out", "*" + integer, "out"),
        Parameter("wrong", "*i32", "wrong"),
        *(Parameter(n, "i64", n) for n in ("elements", "count", "inner", "extent")),
    )
    return KernelSource("pick", text, parameters, (), Tile(1, BLOCK, 4))


def pick_into(
    out: DeviceArray, x: DeviceArray, index: DeviceArray, axis: int, along: bool,
    where: str | None, checked: bool = False,
) -> None:  # fmt: skip
    """Fill `out` with elements of `x` at positions along an axis. Arrays are contiguous. What was
    `checked` before is not waited for.

    Raises:
        InvalidIndex: a position does not exist; it is found before the result is used.
    """
    if out.size == 0:
        return
    machine, extent = _machine(out), x.shape[axis]
    scale = max(out.itemsize // 8, 1)
    inner = math.prod(x.shape[axis + 1 :])
    count = index.shape[axis] if along else index.size
    assert not (along and scale > 1), "numbers of 16 bytes have two positions"
    integer = _INTEGERS[min(out.itemsize, 8)]
    kernel = pick(integer, _position(index), along)
    wrong = DeviceArray(DeviceMemory(machine, 4), (1,), "int32")
    machine.zero(wrong.address, 4)
    elements = out.size * scale
    numbers = [elements, count, inner * scale, extent]
    grid = (-(-elements // BLOCK), 1, 1)
    launch = machine.bind(kernel, grid, [None, None, None, None, *numbers])
    launch([x.address, index.address, out.address, wrong.address])
    if not checked and download(wrong)[0]:
        raise InvalidIndex(
            f"a position along axis {axis} is out of range for extent {extent} (built at {where})."
        )


def _position(index: DeviceArray) -> str:
    return {"i": "i", "u": "u"}[index.dtype.kind] + str(8 * index.itemsize)
