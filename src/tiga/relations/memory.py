"""The bytes that a graph holds, by part."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tiga.relations.csr import Csr


def topology_bytes(given: Iterable[Any], csr: Csr, derived: Mapping[Any, Any]) -> dict[str, int]:
    """Bytes by part; of parts that share memory, the first counts it."""
    dst, src = derived.get(("walk", "dst")), derived.get(("walk", "src"))
    walks = [walk for walk in (dst, src) if walk is not None]
    converted = [derived.get(key) for key in ("row_ptr", "col_idx", "edge_permutation")]
    parts: dict[str, Iterable[Any]] = {
        "input": given,
        "csr": [csr.row_ptr, csr.col_idx, csr.permutation, dst and dst.index],
        "transpose": [src and src.row_ptr, src and src.index],
        "edge_map": [src and src.edge_id],
        "plan": [array for walk in walks for array in walk.plan_arrays()],
        "converted": [*converted, *derived.get("coo", ())],
    }
    seen: set[int] = set()
    return {part: _count(arrays, seen) for part, arrays in parts.items()}


def _count(arrays: Iterable[Any], seen: set[int]) -> int:
    total = 0
    for array in arrays:
        if array is None or _address(array) in seen:
            continue
        seen.add(_address(array))
        total += array.nbytes
    return total


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()
