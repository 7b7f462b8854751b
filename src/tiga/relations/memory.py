"""The bytes that a graph holds, by part."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from tiga.relations.csr import Csr
from tiga.relations.indices import is_native_on_gpu
from tiga.relations.on_device import DeviceCsr
from tiga.runtime.platform import platform_of


class Held(Protocol):
    """What a backend derives from a graph and keeps with it."""

    def parts(self) -> Mapping[str, Iterable[Any]]:
        """Its arrays, by the part of a graph that they count to."""


def topology_bytes(
    given: Iterable[Any], topology: Csr | DeviceCsr, derived: Mapping[Any, Any]
) -> dict[str, int]:
    """Bytes by part; of parts that share memory, the first counts it."""
    dst, src = derived.get(("walk", "dst")), derived.get(("walk", "src"))
    walks = [walk for walk in (dst, src) if walk is not None]
    host = derived.get("host")
    converted = [derived.get(key) for key in ("row_ptr", "col_idx", "edge_permutation")]
    parts: dict[str, list[Any]] = {
        "input": list(given),
        "csr": [*_arrays(topology), *_arrays(host), dst and dst.index],
        "transpose": [src and src.row_ptr, src and src.index],
        "edge_map": [src and src.edge_id],
        "plan": [array for walk in walks for array in walk.arrays],
        "converted": [*converted, *derived.get("coo", ())],
    }
    for held in list(derived.values()):
        if hasattr(held, "parts"):
            for part, arrays in held.parts().items():
                parts[part] += arrays
    seen: set[int] = set()
    return {part: _count(arrays, seen) for part, arrays in parts.items()}


def _arrays(topology: Csr | DeviceCsr | None) -> list[Any]:
    if topology is None:
        return []
    return [topology.row_ptr, topology.col_idx, topology.permutation]


def _count(arrays: Iterable[Any], seen: set[int]) -> int:
    total = 0
    for array in arrays:
        if array is None or not array.nbytes or _address(array) in seen:
            continue
        seen.add(_address(array))
        total += array.nbytes
    return total


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    memory = array._gpu_indices() if is_native_on_gpu(array) else array
    return platform_of(memory).address(memory)
