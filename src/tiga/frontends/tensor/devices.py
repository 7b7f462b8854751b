"""The devices that tensors can be on."""

from dataclasses import dataclass
from typing import Any

from tiga.errors import InvalidValue, UnsupportedByBackend
from tiga.frontends.tensor.lazy import here
from tiga.runtime.scope import active


@dataclass(frozen=True)
class Device:
    """Where a tensor's memory is; it compares equal to its name.

    Example:
        >>> import tiga as tg
        >>> tg.Device("cpu") == "cpu"
        True
    """

    type: str
    index: int = 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other or f"{self.type}:{self.index}" == other
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index == 0 else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"


CPU = Device("cpu")


def check_device(device: Any) -> Device:
    """The device that `device` names: "cpu", "cuda" or "cuda:N"; None is the one of the innermost
    `tg.execution`, else the CPU.

    Raises:
        InvalidValue: there is no such device here.
    """
    if device is None:
        scope = active()
        return CPU if scope is None or scope.device is None else scope.device
    if isinstance(device, (str, Device)) and device == CPU:
        return CPU
    kind, _, index = str(device).partition(":")
    if kind not in ("cuda", "gpu") or not (index or "0").isdecimal():
        raise InvalidValue(
            f"device= expected 'cpu', 'cuda' or 'cuda:N', got {device!r} ({here()})."
        )
    from tiga.backends.triton.machine import machine

    try:
        machine(int(index or 0))
    except UnsupportedByBackend as error:
        raise InvalidValue(f"device={device!r} cannot be had here ({here()}): {error}") from None
    return Device("cuda", int(index or 0))
