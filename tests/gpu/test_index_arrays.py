"""Index arrays on a GPU, of both libraries, against numpy: what graphs are built with."""

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tiga.backends.triton import radix_sort
from tiga.backends.triton.machine import machine
from tiga.relations.indices import on_host
from tiga.runtime.host_arrays import HOST_ARRAYS

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LIBRARIES = ["host", "native", *(["torch"] if find_spec("torch") else [])]


class Host:
    """What stands in for a device where plans are made on the host."""

    arrays = HOST_ARRAYS

    @staticmethod
    def sent(host: np.ndarray) -> np.ndarray:
        return host.copy()


@pytest.fixture(params=LIBRARIES)
def platform(request: pytest.FixtureRequest) -> Any:
    if request.param == "host":
        return Host()
    if request.param == "native":
        return machine(0).platform
    import torch

    from tiga.runtime.cuda import torch_platform

    return torch_platform(torch.device("cpu" if INTERPRETED else "cuda:0"))


def numbers(count: int, most: int, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(count).integers(0, most, count).astype(dtype)


def agree(found: Any, want: np.ndarray) -> None:
    host = found if isinstance(found, np.ndarray) else on_host(found)
    assert host.shape == want.shape
    assert (host == want).all()


@pytest.mark.parametrize("count", [0, 1, 1023, 5000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_positions_and_orders(platform: Any, count: int, dtype: Any) -> None:
    arrays, host = platform.arrays, numbers(count, 1000, dtype)
    x = platform.sent(host)
    agree(arrays.running_sums(x), np.cumsum(host))
    agree(arrays.where(x > 500), np.nonzero(host > 500)[0])
    agree(arrays.order(x, 1000), np.argsort(host, kind="stable"))
    assert arrays.numbers([arrays.total(x), arrays.total(x > 500)]) == [
        host.sum(),
        (host > 500).sum(),
    ]
    if count:
        ends = [arrays.minimum(x), arrays.maximum(x), x[:1], x[-1:]]
        assert arrays.numbers(ends) == [host.min(), host.max(), host[0], host[-1]]


def test_arithmetic(platform: Any) -> None:
    host, other = numbers(3000, 50), numbers(3000, 40)
    x, y = platform.sent(host), platform.sent(other)
    agree(x[1:] - x[:-1], host[1:] - host[:-1])
    agree(3 - (2 * x + 1) // 5, 3 - (2 * host + 1) // 5)
    agree(x * (y < 20) + (1 + x), host * (other < 20) + 1 + host)
    agree((x <= y) & (x != y) | (x >= 45), (host <= other) & (host != other) | (host >= 45))
    agree((x == y)[:7], (host == other)[:7])
    agree(x[platform.sent(np.argsort(other))], host[np.argsort(other)])


def test_searches_and_rows(platform: Any) -> None:
    arrays = platform.arrays
    ordered, bounds = np.sort(numbers(3000, 700)), np.arange(701)
    agree(
        arrays.before(platform.sent(ordered), platform.sent(bounds)),
        np.searchsorted(ordered, bounds),
    )
    counts = numbers(300, 4)
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = arrays.rows(platform.sent(starts), int(starts[-1]))
    agree(rows, np.repeat(np.arange(300), counts))


def test_bits_moves_and_casts(platform: Any) -> None:
    arrays = platform.arrays
    places = np.sort(np.random.default_rng(0).choice(3200, 100, replace=False))
    marks = np.zeros(3200, np.uint8)
    marks[places] = 1
    words = np.packbits(marks, bitorder="little").view(np.int32)
    agree(arrays.bits(platform.sent(places), 3200), words)
    x = platform.sent(numbers(100, 9))
    put = arrays.put(arrays.full(x, 3200, -1), platform.sent(places), x)
    want = np.full(3200, -1)
    want[places] = numbers(100, 9)
    agree(put, want)
    agree(arrays.join([x[3:7], arrays.positions(x, 4)]), np.r_[numbers(100, 9)[3:7], 0:4])
    assert arrays.cast(x, 32).itemsize == 4
    agree(arrays.cast(arrays.cast(x, 32), 64), numbers(100, 9))


def test_arrays_that_are_sent_together(platform: Any) -> None:
    if isinstance(platform, Host):
        pytest.skip("nothing is sent to the host")
    hosts = [numbers(3, 9), numbers(0, 9), numbers(700, 9, np.int32), numbers(1, 9)]
    for host, there in zip(hosts, platform.sent_together(hosts), strict=True):
        agree(there, host)
        assert there.itemsize == host.itemsize
        assert platform.address(there) % 16 == 0 or not host.size


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(np.int32, 1), (np.int32, 13), (np.int64, 13), (np.int32, 32), (np.int64, 44), (np.int64, 64)],
)
def test_sorts_by_bits(dtype: Any, bits: int) -> None:
    """Beyond one tile, with places and with items, some keys very often."""
    gpu = machine(0).platform
    rng = np.random.default_rng(bits)
    host = (rng.integers(0, 2**63, 9000) >> (63 - min(bits, 63))).astype(dtype)
    host[rng.random(9000) < 0.3] = host[0]
    if bits in (32, 64):
        host ^= dtype(-1) * (rng.random(9000) < 0.5)  # the highest bit as well
    order = np.argsort(host.view(f"u{host.itemsize}"), kind="stable")
    keys, places = radix_sort.sorted_by(gpu.sent(host), bits)
    agree(keys, host[order])
    agree(places, order)
    items = rng.integers(0, 2**20, 9000)
    _, moved = radix_sort.sorted_by(gpu.sent(host), bits, gpu.sent(items), 20)
    agree(moved, items[order])
    agree(radix_sort.sorted_order(gpu.sent(host), bits), order)


def test_sorts_with_wide_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of arrays of 2^30 elements, which counts and their flags need 64 bits for."""
    monkeypatch.setattr(radix_sort, "NARROW", 0)
    host = numbers(9000, 700)
    keys, places = radix_sort.sorted_by(machine(0).platform.sent(host), 10)
    agree(keys, np.sort(host))
    agree(places, np.argsort(host, kind="stable"))


def test_sorts_of_many_tiles() -> None:
    """More than run at once, so that programs look back far."""
    count = 30_000 if INTERPRETED else 20_000_000
    host = numbers(count, 2**20, np.int32)
    host[: count // 2] //= 2**15  # few keys, often
    keys, places = radix_sort.sorted_by(machine(0).platform.sent(host), 20)
    agree(keys, np.sort(host))
    agree(places, np.argsort(host, kind="stable"))
