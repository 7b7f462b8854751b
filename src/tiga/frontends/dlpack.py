"""Memory shared with other libraries: DLPack both ways, and torch's CPU tensors."""

from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType, InvalidValue

CPU_DEVICE = (1, 0)
"""DLPack's name of the CPU."""


def array_of(x: Any, copy: bool | None = None) -> np.ndarray:
    """The numpy array that shares the memory of a DLPack producer on the CPU.

    Raises:
        InvalidType: it is no producer, or not on the CPU.
    """
    if not hasattr(x, "__dlpack__"):
        raise InvalidType(
            f"from_dlpack expected an object with __dlpack__, got {type(x).__name__}."
        )
    if hasattr(x, "__dlpack_device__") and tuple(map(int, x.__dlpack_device__())) != CPU_DEVICE:
        raise InvalidType("from_dlpack expected memory of the CPU; copy it there first.")
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


def array_of_torch(tensor: Any) -> np.ndarray:
    """The numpy array that shares the memory of a dense torch tensor on the CPU.

    Raises:
        InvalidType: it is not dense, not on the CPU, or of a dtype without counterpart.
    """
    if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided":
        raise InvalidType(f"from_torch expected a dense tensor on the CPU, got {tensor.device}.")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if str(plain.dtype) == "torch.bfloat16":
        import torch

        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    try:
        return plain.numpy()
    except TypeError:
        raise InvalidType(f"from_torch: no Tiga dtype holds {tensor.dtype}.") from None


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


def torch_of(array: np.ndarray) -> Any:
    """The torch tensor that shares an array's memory."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
