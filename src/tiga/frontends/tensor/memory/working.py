"""Room for programs: operands are brought in and stay while one runs, the rest may be spilled."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from tiga.errors import OutOfBudget
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import Cell, here
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.scope import Scope, active, block_of
from tiga.trace.node import reached


def cells_below(nodes: Sequence[Any]) -> list[Cell]:
    """The values in memory, or on disk, that computing the nodes reads."""
    roots = [child for node in nodes if node.cell is None for child in node.inputs]
    below = reached(roots, until=lambda node: node.cell is not None)
    return list({id(node.cell): node.cell for node in below if node.cell is not None}.values())


@contextmanager
def working(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Room for computing tensors: operands are brought in and stay, the rest may be spilled.

    Raises:
        OutOfBudget: operands, results and intermediate values do not fit at once.
    """
    scope = active()
    assert scope is not None
    roots = [t._node for t in tensors if t._array is None and t._node.cell is None]
    cells = cells_below(roots)
    results = {id(node): node.type for node in roots}
    need = sum(type.row_bytes for type in results.values())
    what = f"computing {', '.join(map(str, results.values()))} ({here()})"
    tier = "device" if any(map(_is_on_gpu, cells)) else "host"
    _require_room(scope, cells, need, what, tier)
    with ExitStack() as stack:
        for cell in cells:
            stack.enter_context(scope.pinned([cell.array]))
        if need:
            scope.reserve(need, what, tier)
        yield


def _is_on_gpu(cell: Cell) -> bool:
    """Whether a value is on a GPU, or comes back there."""
    absent = cell.absent
    if absent is not None:
        return bool(absent.backing.tier == "device")
    return isinstance(cell.array, DeviceArray)


def _require_room(
    scope: Scope, cells: Sequence[Cell], need: int, what: str, tier: str
) -> None:  # fmt: skip
    """Find that operands and results do not fit before any operand is brought in."""
    account = scope.accounts[tier]
    away = (cell.absent for cell in cells)
    absent = {id(a): a.nbytes for a in away if a is not None and a.backing.tier == tier}
    if not absent or account.budget is None:
        return
    needed = need + sum(absent.values())
    fixed = _bytes_in_memory(cells, tier) if scope.lru else account.live
    if fixed + needed > account.budget:
        raise OutOfBudget(account.refusal(needed, f"{what} with operands from disk"))


def _bytes_in_memory(cells: Sequence[Cell], tier: str) -> int:
    """Bytes of the blocks of a tier that values in memory lie in."""
    arrays = (cell.array for cell in cells if cell.absent is None)
    kinds = (DeviceArray,) if tier == "device" else (np.ndarray,)
    blocks = [block_of(array) for array in arrays if isinstance(array, kinds)]
    return sum({id(block): block.nbytes for block in blocks}.values())
