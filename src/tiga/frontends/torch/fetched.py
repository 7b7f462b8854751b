"""Results of calls over graphs in files, from a GPU to where they are wanted."""

import torch

from tiga.backends.triton.paged.link import link_of
from tiga.backends.triton.paged.memory import PIECE, Mover
from tiga.backends.triton.paged.placement import loading_bytes
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.knobs import current
from tiga.runtime.arena import anonymous
from tiga.runtime.cuda import on, torch_platform
from tiga.runtime.scope import Scope, active


def fetched(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A result on a device. What is long comes to memory of the host through pinned memory and
    several threads, several times as fast as torch copies it."""
    nbytes = tensor.numel() * tensor.element_size()
    if tensor.device == device or tensor.device.type != "cuda" or device.type != "cpu":
        return tensor.to(device)
    scope = active()
    pinned = loading_bytes(_pinnable(scope), nbytes)
    if nbytes < PIECE or pinned < PIECE:
        return tensor.to(device)
    host = anonymous(nbytes)
    with on(tensor.device):
        _fetch(tensor.detach().contiguous(), host, pinned, scope)
    kind = array_of_torch(torch.empty(0, dtype=tensor.dtype)).dtype
    return torch_of(host.view(kind).reshape(tensor.shape))


def _fetch(tensor: torch.Tensor, host: object, pinned: int, scope: Scope | None) -> None:
    account = None if scope is None else scope.accounts["host-pinned"]
    ticket = 0 if account is None else account.charge(pinned, "a result on its way to the host")
    try:
        platform = torch_platform(tensor.device)
        mover = Mover(link_of(platform), platform, pinned)
        mover.fetch(tensor.data_ptr(), host.reshape(len(tensor), -1))  # type: ignore[attr-defined]
    finally:
        if account is not None:
            account.release(ticket)


def _pinnable(scope: Scope | None) -> int:
    """Bytes of pinned memory that may be taken now."""
    account = None if scope is None else scope.accounts["host-pinned"]
    if account is None or account.budget is None:
        return current().memory_bound
    return max(0, account.budget - account.live)
