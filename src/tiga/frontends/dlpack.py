"""Memory shared with other libraries: DLPack both ways, and torch's tensors."""

from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType
from tiga.runtime.caller import user_line
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.dlpack import (
    CUDA,
    LEGACY_STREAM,
    exported,
    exported_host,
    imported,
    imported_host,
)

CPU_DEVICE = (1, 0)
"""DLPack's name of the CPU."""


def device_array_of(x: Any) -> DeviceArray:
    """The array that shares the memory of a DLPack producer on a GPU; its work so far comes before
    ours."""
    from tiga.backends.triton.machine import machine

    return imported(x.__dlpack__(stream=LEGACY_STREAM), machine)


def array_of(x: Any, copy: bool | None = None) -> Any:
    """The array that shares the memory of a DLPack producer on the CPU or on a GPU.

    Raises:
        InvalidType: it is no producer, or elsewhere.
    """
    if not hasattr(x, "__dlpack__"):
        raise InvalidType(
            f"from_dlpack expected an object with __dlpack__, got {type(x).__name__} "
            f"({user_line()}); tg.asarray takes numbers, lists and buffers."
        )
    known = hasattr(x, "__dlpack_device__")
    place = tuple(map(int, x.__dlpack_device__())) if known else CPU_DEVICE
    if place[0] == CUDA:
        return device_array_of(x)
    if place != CPU_DEVICE:
        raise InvalidType(
            f"from_dlpack expected memory of the CPU or an NVIDIA GPU, got that of device {place} "
            f"({user_line()}); copy it there first."
        )
    if type(x).__module__.partition(".")[0] == "torch":
        array = array_of_torch(x)
    elif hasattr(x, "_array"):
        array = x.numpy()
    else:
        array = _host_array(x)
    return np.array(array) if copy else array


def _host_array(x: Any) -> np.ndarray:
    """The array that shares a producer's memory, read-only where it does not say that it may be
    written: producers before DLPack 1.0 cannot say it."""
    lender = _Lender(x)
    try:
        return np.from_dlpack(lender)
    except (BufferError, RuntimeError):  # a dtype that numpy does not have
        return imported_host(x.__dlpack__())


class _Lender:
    """A producer that keeps its capsules: one that goes while an error is raised breaks it."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.capsules: list[Any] = []
        self.__dlpack_device__ = producer.__dlpack_device__

    def __dlpack__(self, **options: Any) -> Any:
        self.capsules.append(self.producer.__dlpack__(**options))
        return self.capsules[-1]


def array_of_torch(tensor: Any) -> Any:
    """The array that shares the memory of a dense torch tensor on the CPU or on a GPU.

    Raises:
        InvalidType: it is not dense, elsewhere, or of a dtype without counterpart.
    """
    if tensor.device.type not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        layout = str(tensor.layout).removeprefix("torch.")
        raise InvalidType(
            f"from_torch expected a dense tensor on the CPU or a GPU, got a {layout} one on "
            f"{tensor.device} ({user_line()}); .to_dense() or .cpu() makes one."
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type == "cuda":
        return device_array_of(plain)
    if str(plain.dtype) == "torch.bfloat16":
        import torch

        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    try:
        return plain.numpy()
    except TypeError:
        raise InvalidType(
            f"from_torch: no Tiga dtype holds {tensor.dtype} ({user_line()}); cast it with .to()."
        ) from None


def device_capsule(array: DeviceArray, stream: Any, **options: Any) -> Any:
    """The DLPack capsule of an array on a GPU. Work that the consumer puts on `stream` comes after
    ours; asked for on the CPU (`dl_device`), it is a copy."""
    place = options.get("dl_device")
    if place is not None and tuple(map(int, place)) == CPU_DEVICE:
        from tiga.frontends.tensor.arrays import to_host

        return capsule(to_host(array), max_version=options.get("max_version"))
    if options.get("copy"):
        from tiga.frontends.tensor.arrays import duplicate

        array = duplicate(array)
    if stream not in (None, -1, 0, LEGACY_STREAM):
        array.machine.lead(stream)
    return exported(array)


def capsule(array: np.ndarray, **options: Any) -> Any:
    """The DLPack capsule of an array; options are those of the array API's `__dlpack__`.

    Raises:
        InvalidType: another device is asked for.
    """
    device = options.get("dl_device")
    if device is not None and tuple(map(int, device)) != CPU_DEVICE:
        raise InvalidType(
            f"__dlpack__: the memory is on the CPU, not on device {device} ({user_line()})."
        )
    given = {k: v for k, v in options.items() if v is not None and k != "dl_device"}
    if array.dtype != ml_dtypes.bfloat16:
        return array.__dlpack__(**given)
    return exported_host(np.array(array) if options.get("copy") else array)


def torch_of(array: Any) -> Any:
    """The torch tensor that shares an array's memory."""
    import torch

    if isinstance(array, DeviceArray):
        return torch.from_dlpack(exported(array))
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
