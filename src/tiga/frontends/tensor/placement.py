"""Which device values are on, and copies between devices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiga.backends.triton.dense.executable import copied
from tiga.backends.triton.dense.moves import contiguous, copy_into
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.machine import machine
from tiga.errors import InvalidValue
from tiga.frontends.tensor.core import Tensor, give_array
from tiga.frontends.tensor.devices import CPU, Device, check_device
from tiga.frontends.tensor.lazy import HELPER, LARGE, LazyNode, Leaf, leaf, user_place
from tiga.ops.tensor_transfer import ToDevice
from tiga.runtime.device_array import DeviceArray, DeviceMemory, download, upload
from tiga.runtime.scope import active
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Type

Array = Any
"""numpy's array, or a GPU's (`DeviceArray`)."""


def device_of(array: Array) -> Device:
    """The device of an array."""
    return Device("cuda", array.machine.index) if isinstance(array, DeviceArray) else CPU


def room(index: int) -> Room:
    """A GPU with the budget in force."""
    return Room(machine(index), active())


def to_gpu(array: Array, index: int) -> DeviceArray:
    """A row-major copy on a GPU."""
    where = room(index)
    if isinstance(array, DeviceArray):
        if array.machine.index == index:
            return copied(array, where)
        array = download(contiguous(array))
    made = where.like(array.shape, array.dtype)
    return upload(array, where.machine, made.memory)


def on_gpu(array: Array, index: int) -> DeviceArray:
    """An operand where it is; single numbers, and what Tiga made for itself, are copied there."""
    return array if isinstance(array, DeviceArray) else to_gpu(array, index)


def to_host(array: Array) -> np.ndarray:
    """A copy on the CPU, of an array that is elsewhere; waits for the work that computes it."""
    return download(contiguous(array)) if isinstance(array, DeviceArray) else array


def moved_to(array: Array, device: Device) -> Array:
    """A copy on another device."""
    return to_host(array) if device == CPU else to_gpu(array, device.index)


def duplicate(array: Array) -> Array:
    """A row-major copy on the same device."""
    if isinstance(array, DeviceArray):
        return copied(array, room(array.machine.index))
    return np.array(array)


def to(x: Tensor, device: Any) -> Tensor:
    """The tensor on a device: itself if it is there, else a copy through which derivatives flow.

    Raises:
        InvalidValue: there is no such device here.
    """
    target = check_device(device)
    x.realize()
    assert x._array is not None
    source = device_of(x._array)
    if source == target:
        return x
    array = moved_to(x._array, target)
    op = ToDevice(_name(target), _name(source))
    node = LazyNode(op, (x._node,), x._node.type, user_place(), 0, LARGE)
    made = Tensor(node if x._grad else leaf(array, node.type, node.place), x._grad)
    made._leaf = not x._grad
    give_array(made, array)
    if x._grad:
        node.cell = leaf(array, node.type).cell
    return made


def _name(device: Device) -> str:
    return "cpu" if device == CPU else f"cuda:{device.index}"


def device_named(name: str) -> Device:
    """The device that `ToDevice` calls so."""
    kind, _, index = name.partition(":")
    return Device(kind, int(index or 0))


def write(target: DeviceArray, values: Array, what: str) -> None:
    """Store values, broadcast and of the same dtype, into a view of a GPU's memory.

    Raises:
        InvalidValue: the values are on another device, and not a single number.
    """
    if not isinstance(values, DeviceArray):
        if values.size != 1:
            raise InvalidValue(
                f"{what}: the values are on the CPU and the tensor on {device_of(target)}; move "
                "them there by name: .to(x.device)."
            )
        values = _number(np.asarray(values), target)
    view: Any = np.broadcast_to(values, target.shape)
    shared = values.memory is target.memory
    copy_into(target, duplicate(view) if shared else view)


def _number(value: np.ndarray, like: DeviceArray) -> DeviceArray:
    """One number beside an array, in a few bytes that no budget counts."""
    return upload(value, like.machine, DeviceMemory(like.machine, value.nbytes))


# programs


def places(order: Sequence[Node], roots: Sequence[Node]) -> list[Device | None]:
    """The device of every root, from the values below it; None where there are none.

    `order` has the nodes to compute, each after its inputs.

    Raises:
        InvalidValue: an op has operands on several devices; the message has its line.
    """
    known: dict[int, Device | None] = {}
    for node in order:
        if isinstance(node.op, ToDevice):
            known[id(node)] = device_named(node.op.device)
            continue
        found = {d for d in (_place(child, known) for child in node.inputs) if d is not None}
        if len(found) > 1:
            names = " and ".join(sorted(map(str, found)))
            raise InvalidValue(
                f"{node.op.name} of values on {names} (built at {getattr(node, 'where', None)}): "
                "move one of them by name: x.to(device)."
            )
        known[id(node)] = found.pop() if found else None
    return [_place(root, known) for root in roots]


def _place(node: Node, known: dict[int, Device | None]) -> Device | None:
    if id(node) in known:
        return known[id(node)]
    cell = node.cell
    if cell is None or node.op.origin is Origin.NUMBER:
        return None
    if isinstance(node.op, Leaf) and node.op.label == HELPER:
        return None
    array = cell.array
    # A single number on the CPU goes with operands on any device.
    return device_of(array) if isinstance(array, DeviceArray) or array.size > 1 else None


def filled_on(type_: Type, value: Any, index: int) -> DeviceArray:
    """An array on a GPU with one number in every element; None leaves them as they are."""
    made = room(index).array(type_)
    if value is not None:
        write(made, np.asarray(value, type_.dtype.numpy), "a new tensor")
    return made
