"""Tensors on other devices: copies through which derivatives flow."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import moved_to
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device, check_device
from tiga.frontends.tensor.functions.selection import astype
from tiga.frontends.tensor.lazy import LARGE, LazyNode, here, leaf, user_place
from tiga.frontends.tensor.storage import give_array
from tiga.ops.tensor_transfer import ToDevice


def to(x: Tensor, device: Any) -> Tensor:
    """The tensor on a device: itself if it is there, else a copy through which derivatives flow.

    Raises:
        InvalidValue: there is no such device here.
    """
    target, source = check_device(device), x.device
    if source == target:
        return x
    array = moved_to(x._in_memory(), target)
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


def _to(x: Tensor, target: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The tensor on a device, of a dtype, or both."""
    if target is not None:
        if isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda", "gpu"):
            device = target
        elif hasattr(target, "mlir"):
            dtype = target
        else:
            device = target
    moved = x if device is None else to(x, device)
    return moved if dtype is None else astype(moved, dtype, copy=False)


def _to_device(x: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """`to(device)`, as the array API calls it. There is one stream per device: `stream` is None."""
    if stream is not None:
        raise InvalidValue(f"to_device: stream= expected None, got {stream!r} ({here()}).")
    return to(x, device)


def cpu(x: Tensor) -> Tensor:
    """The tensor on the CPU: itself if it is there, else a copy with derivatives."""
    return to(x, "cpu").realize()


def cuda(x: Tensor, device: Any = "cuda") -> Tensor:
    """The tensor on a GPU: itself if it is there, else a copy with derivatives.

    Raises:
        InvalidValue: there is no such GPU here.
    """
    return to(x, f"cuda:{device}" if isinstance(device, int) else device)


METHODS: dict[str, Any] = {"to": _to, "to_device": _to_device, "cpu": cpu, "cuda": cuda}
