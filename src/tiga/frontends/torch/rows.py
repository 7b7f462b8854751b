"""Rows of a tensor in another order."""

import torch

from tiga.frontends.torch.devices import on_gpu
from tiga.runtime.cuda import capability, current_stream, on

LEAST_ROWS = 1 << 14
"""Fewer rows are moved as fast by torch, with less to do for the host."""

MOST_BYTES = 512
"""Rows of more bytes keep the threads busy that torch has for each."""


def rows_at(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Row `order[i]` of a tensor for each i."""
    if not _moves(x, order):
        return x.index_select(0, order)
    return _moved(x, order, x.new_empty((len(order), *x.shape[1:])))


def move_rows_to(out: torch.Tensor, x: torch.Tensor, order: torch.Tensor) -> None:
    """As `rows_at`, into a contiguous tensor."""
    if not _moves(x, order):
        torch.index_select(x, 0, order, out=out)
    else:
        _moved(x, order, out)


def _moves(x: torch.Tensor, order: torch.Tensor) -> bool:
    """Whether a kernel of ours is faster."""
    if not on_gpu(x.device) or len(order) < LEAST_ROWS or not order.is_contiguous():
        return False
    return 0 < _row_bytes(x) <= MOST_BYTES


def _row_bytes(x: torch.Tensor) -> int:
    return x[:1].numel() * x.element_size()


def _moved(x: torch.Tensor, order: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    from tiga.backends.triton.row_moves import move_rows

    given, device = x.contiguous(), x.device
    addresses = [tensor.data_ptr() for tensor in (given, order, out)]
    with on(device):
        move_rows(
            addresses, len(order), _row_bytes(x), order.element_size(), device.index or 0,
            capability(device), current_stream(device),
        )  # fmt: skip
    return out
