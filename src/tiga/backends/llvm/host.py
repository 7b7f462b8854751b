"""What the machine is: its caches, and its processor."""

from functools import lru_cache
from pathlib import Path

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}

ASSUMED = 16 * 2**20
"""Bytes of the last cache where the system does not tell."""


@lru_cache(maxsize=1)
def last_cache_bytes(folder: str = _CACHES) -> int:
    """Bytes of the cache before memory, as far as the system tells (only Linux does).

    Example:
        >>> last_cache_bytes() >= 2**16
        True
    """
    try:
        found = [_size(path.read_text()) for path in Path(folder).glob("index*/size")]
    except (OSError, ValueError):
        found = []
    return max(found, default=ASSUMED)


_PROCESSOR = "/proc/cpuinfo"
_TELLING = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@lru_cache(maxsize=1)
def processor(path: str = _PROCESSOR) -> str | None:
    """What code for this processor depends on: who made it, its model and all of its features. None
    where the system does not tell (Linux on x86-64 does).

    Example:
        >>> processor("/nowhere") is None
        True
    """
    found = {}
    try:
        with open(path) as lines:
            for line in lines:  # of the first core: each takes the system some time
                name, _, value = line.partition(":")
                if not line.strip():
                    break
                found[name.strip()] = value.strip()
    except OSError:
        return None
    if not set(_TELLING) <= found.keys():
        return None
    return "\n".join(f"{name}: {found[name]}" for name in _TELLING)


def _size(text: str) -> int:
    """Bytes of `32768K`."""
    text = text.strip()
    return int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1)
