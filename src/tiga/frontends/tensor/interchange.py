"""What other libraries ask of tensors: torch, DLPack, code for any array API, and graphs."""

from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.functions.selection import astype
from tiga.frontends.tensor.lazy import here

ARRAY_API = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Versions of the array API standard whose functions there are."""


def to_torch(x: Tensor, *, copy: bool = False) -> Any:
    """A torch tensor that shares the memory (or, with `copy`, has its own). What depends on
    connected torch tensors is part of torch's graph, with memory of its own."""
    from tiga.frontends.dlpack import torch_of
    from tiga.frontends.tensor.bridge import connected, to_torch_connected

    if nodes := connected(x) if x._grad else []:
        return to_torch_connected(x, nodes)
    if x.device != CPU:
        whole = astype(x, x.dtype) if copy else x
        return torch_of(whole._in_memory())
    array = x.numpy()
    return torch_of(array.copy() if copy or not array.flags.writeable else array)


def _dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:  # fmt: skip
    from tiga.frontends.dlpack import capsule, device_capsule

    if x.device != CPU:
        array: Any = x._in_memory()
        return device_capsule(
            array, stream, max_version=max_version, dl_device=dl_device, copy=copy
        )
    if stream is not None:
        raise InvalidValue(f"__dlpack__: expected no stream on the CPU, got {stream!r} ({here()}).")
    return capsule(x.numpy(), max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(x: Tensor) -> tuple[int, int]:
    return (1, 0) if x.device == CPU else (2, x.device.index)


def _array_namespace(x: Tensor, /, *, api_version: str | None = None) -> Any:
    import tiga

    if api_version not in (None, *ARRAY_API):
        raise InvalidValue(
            f"api_version= expected one of {', '.join(ARRAY_API)}, got {api_version!r} ({here()})."
        )
    return tiga


def _gpu_indices(x: Tensor) -> Any:
    """The elements of a tensor on a GPU, as graphs take them; nobody else needs it."""
    from tiga.frontends.tensor.graph_indices import gpu_indices

    return gpu_indices(x)


def _index_template(x: Tensor) -> Any:
    """What makes tensors like this one of a graph's index arrays."""
    from tiga.frontends.tensor.graph_indices import index_template

    return index_template(x)


def _torch_function(
    cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None
) -> Any:  # fmt: skip
    """What torch asks for where one of its functions is given a native tensor: an error that says
    so, as torch would expect a `Tensor`, and not a `Tensor`."""
    import tiga

    name = function.__name__
    ours = f"tg.{name} on native tensors only, or " if hasattr(tiga, name) else ""
    raise InvalidType(
        f"torch's `{name}` expected torch tensors, got a native one ({here()}): use {ours}"
        "x.to_torch() on those."
    )


METHODS: dict[str, Any] = {
    "to_torch": to_torch, "__dlpack__": _dlpack, "__dlpack_device__": _dlpack_device,
    "__array_namespace__": _array_namespace, "__torch_function__": classmethod(_torch_function),
    "_gpu_indices": _gpu_indices, "_index_template": _index_template,
}  # fmt: skip
