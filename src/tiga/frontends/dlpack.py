"""Memory shared with other libraries: DLPack both ways, and torch's tensors."""

from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.dlpack import CUDA, LEGACY_STREAM, exported, imported

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
            f"from_dlpack expected an object with __dlpack__, got {type(x).__name__}."
        )
    known = hasattr(x, "__dlpack_device__")
    place = tuple(map(int, x.__dlpack_device__())) if known else CPU_DEVICE
    if place[0] == CUDA:
        return device_array_of(x)
    if place != CPU_DEVICE:
        raise InvalidType(
            "from_dlpack expected memory of the CPU or an NVIDIA GPU; copy it there first."
        )
    if type(x).__module__.partition(".")[0] == "torch":
        array = array_of_torch(x)
    elif hasattr(x, "_array"):
        array = x.numpy()
    else:
        array = np.from_dlpack(x)
    if copy:
        return np.array(array)
    if not array.flags.writeable:
        if copy is False:
            raise InvalidValue("from_dlpack with copy=False of read-only memory.")
        return np.array(array)
    return array


def array_of_torch(tensor: Any) -> Any:
    """The array that shares the memory of a dense torch tensor on the CPU or on a GPU.

    Raises:
        InvalidType: it is not dense, elsewhere, or of a dtype without counterpart.
    """
    if tensor.device.type not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        raise InvalidType(
            f"from_torch expected a dense tensor on the CPU or a GPU, got {tensor.device}."
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
        raise InvalidType(f"from_torch: no Tiga dtype holds {tensor.dtype}.") from None


def device_capsule(array: DeviceArray, stream: Any, **options: Any) -> Any:
    """The DLPack capsule of an array on a GPU. Work that the consumer puts on `stream` comes after
    ours; asked for on the CPU (`dl_device`), it is a copy."""
    place = options.get("dl_device")
    if place is not None and tuple(map(int, place)) == CPU_DEVICE:
        from tiga.frontends.tensor.placement import to_host

        return capsule(to_host(array), max_version=options.get("max_version"))
    if options.get("copy"):
        from tiga.frontends.tensor.placement import duplicate

        array = duplicate(array)
    if stream not in (None, -1, 0, LEGACY_STREAM):
        array.machine.lead(stream)
    return exported(array)


def capsule(array: np.ndarray, **options: Any) -> Any:
    """The DLPack capsule of an array; options are those of the array API's `__dlpack__`.

    Raises:
        InvalidType: its dtype has no DLPack code here, or another device is asked for.
    """
    device = options.get("dl_device")
    if device is not None and tuple(map(int, device)) != CPU_DEVICE:
        raise InvalidType(f"__dlpack__: the memory is on the CPU, not on device {device}.")
    given = {k: v for k, v in options.items() if v is not None and k != "dl_device"}
    if array.dtype == ml_dtypes.bfloat16:
        raise InvalidType("__dlpack__ of bfloat16 is not supported; use .to_torch().")
    return array.__dlpack__(**given)


def torch_of(array: Any) -> Any:
    """The torch tensor that shares an array's memory."""
    import torch

    if isinstance(array, DeviceArray):
        return torch.from_dlpack(exported(array))
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
