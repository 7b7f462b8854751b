"""Calls over graphs in files that are interrupted, meet a full disk, or run in several threads and
scopes: what they hold is given back, and the next call gives the same bits."""

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import UnsupportedByBackend
from tiga.paging import lanes, pipeline
from tiga.paging.numbers import pick
from tiga.runtime.arena import Arena
from tiga.runtime.pages import FileRows
from tiga.runtime.tiers import parse_size

torch = pytest.importorskip("torch")

NODES, EDGES, WIDTH = 3000, 6000, 8
SMALL = "300KiB"


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


class Sorted(tg.MessagePassing):
    """Runs through torch."""

    reducer = tg.max()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sort(src.x * edge.w[:, None], dim=-1).values


KERNELS = [Weighted, Sorted]


def saved(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    dst = np.sort(rng.integers(0, NODES, EDGES))
    graph = tg.Graph.from_coo((dst + rng.integers(0, 40, EDGES)) % NODES, dst, num_src=NODES)
    x, w = rng.random((NODES, WIDTH), np.float32), rng.random(EDGES, np.float32)
    return graph.save(path, {"src": {"x": x}, "edge": {"w": w}}, overwrite=True)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("graph") / "g", 5)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No threads; those of earlier tests may end meanwhile."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def results(kernel: Any, paged: Any) -> list[torch.Tensor]:
    """The output, and the gradients of both fields."""
    x, w = (
        torch.from_numpy(paged.field(*n).numpy()).requires_grad_()
        for n in (("src", "x"), ("edge", "w"))
    )
    out = kernel(graph=paged, ndata={"x": x}, edge={"w": w})
    return [out.detach(), *torch.autograd.grad((out * out).sum(), [x, w])]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def nth(function: Callable[..., Any], number: int, before: Callable[[], None]) -> Any:
    """The function, which calls `before` first at its call of this number."""
    calls = count()

    def instead(*given: Any, **named: Any) -> Any:
        if next(calls) == number:
            before()
        return function(*given, **named)

    return instead


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, run: Any) -> int:
    """How often a function is called in a run of which the pages are planned already."""
    run()
    numbers = count()
    original = getattr(owner, name)

    def counted(*given: Any, **named: Any) -> Any:
        next(numbers)
        return original(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counted)
        run()
    return next(numbers)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize(
    ("kernel", "budget", "rows", "owner", "name"),
    [
        (Weighted, SMALL, None, pipeline.Ahead, "read"),
        (Weighted, "3MiB", 300, lanes, "wait"),
        (Sorted, SMALL, None, FileRows, "read_into"),
    ],
)
def test_an_interrupt_where_pages_are_waited_for(
    kernel: Any, budget: str, rows: int | None, owner: Any, name: str, share: float, stored: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    paged, layer = tg.Graph.open(stored), kernel()
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path, page_rows=rows) as run:
        expected = results(layer, paged)
        number = int(share * calls_of(monkeypatch, owner, name, lambda: results(layer, paged)))
        with monkeypatch.context() as patch:
            interrupted = nth(getattr(owner, name), number, interrupt)
            patch.setattr(owner, name, lambda *given: interrupted(*given))
            with pytest.raises(KeyboardInterrupt) as caught:
                results(layer, paged)
        del caught
        assert same(results(layer, paged), expected)
        del expected
        gc.collect()
        assert not any(run.memory_report()["live_bytes"].values())
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("kernel", "owner", "name", "share"),
    [
        (Weighted, os, "posix_fallocate", 0.0),
        (Weighted, FileRows, "write", 0.7),
        (Sorted, os, "posix_fallocate", 0.7),
        (Sorted, FileRows, "write", 0.0),
    ],
)
def test_a_disk_that_is_full_at_some_point(
    kernel: Any, owner: Any, name: str, share: float, stored: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    paged, layer = tg.Graph.open(stored), kernel()
    with tg.execution(memory={"host": SMALL}, spill_dir=tmp_path) as run:
        expected = results(layer, paged)
        number = int(share * calls_of(monkeypatch, owner, name, lambda: results(layer, paged)))
        with monkeypatch.context() as patch:
            failing = nth(getattr(owner, name), number, full)
            patch.setattr(owner, name, lambda *given: failing(*given))
            with pytest.raises(OSError, match="No space left") as caught:
                results(layer, paged)
        assert caught.value.errno == errno.ENOSPC
        del caught
        assert same(results(layer, paged), expected)
        del expected
        gc.collect()
        assert not any(run.memory_report()["live_bytes"].values())


@pytest.mark.parametrize("kernel", KERNELS)
def test_threads_share_a_graph_and_a_kernel(kernel: Any, stored: Path, tmp_path: Path) -> None:
    paged, layer = tg.Graph.open(stored), kernel()
    found: list[Any] = [None] * 3

    def work(place: int) -> None:
        budget = ("300KiB", "1MiB", "8MiB")[place]
        with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
            values = results(layer, paged)
        found[place] = values, run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = results(layer, paged)
    for values, fits in found:
        assert fits
        assert same(values, expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_innermost_budget_holds(kernel: Any, stored: Path, tmp_path: Path) -> None:
    paged, layer = tg.Graph.open(stored), kernel()
    expected = results(layer, paged)
    with tg.execution(memory={"host": "64MiB"}, spill_dir=tmp_path) as outer:
        with tg.execution(memory={"host": SMALL}, spill_dir=tmp_path) as inner:
            found = results(layer, paged)
        assert same(found, expected)
        assert inner.memory_report()["peak_bytes"]["host"] <= parse_size(SMALL)
        assert outer.memory_report()["peak_bytes"]["host"] == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_file_that_is_written_anew_is_read_as_it_was(kernel: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "g", 1)
    before, layer = tg.Graph.open(path), kernel()
    expected = results(layer, before)
    saved(path, 2)
    assert same(results(layer, before), expected)
    assert not same(results(layer, tg.Graph.open(path)), expected)


def test_rows_that_an_index_cannot_number_are_refused() -> None:
    most = np.iinfo(np.int32).max
    numbers = np.array([5, 3, 5], np.int32)
    with pytest.raises(UnsupportedByBackend, match=r"int32.*in_memory"):
        pick(numbers, 3, 6, most - 2, Arena(4096), 3)
    picks = pick(numbers, 3, 6, most - 3, Arena(4096), 3)
    assert (picks.count, numbers.tolist()) == (2, [most - 2, most - 3, most - 2])
