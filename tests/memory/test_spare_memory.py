"""Memory of pages and of their results waits for the next run within a scope."""

from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.runtime import scope as scopes
from tiga.runtime.arena import HUGE, in_huge_pages
from tiga.runtime.pool import Pool
from tiga.runtime.scope import Scope

BYTE = np.dtype(np.uint8)
SIZE = 2**20


@pytest.fixture(autouse=True)
def _small_memory(monkeypatch):
    monkeypatch.setattr(scopes, "WAITS", 2**19)


@pytest.fixture
def scope():
    found = Scope({"host": 3 * SIZE})
    found.begin()
    yield found
    found.end()


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_an_array_takes_the_memory_of_one_that_is_gone(scope: Scope) -> None:
    first = scope.memory((SIZE,), BYTE)
    place = address(first)
    second = scope.memory((SIZE,), BYTE)
    assert address(second) != place
    del first
    assert scope.pool.waiting == SIZE
    assert address(scope.memory((SIZE,), BYTE)) == place


def test_memory_serves_only_what_takes_about_as_much(scope: Scope) -> None:
    place = address(scope.memory((SIZE,), BYTE))
    assert address(scope.memory((SIZE * 3 // 4,), BYTE)) != place
    assert address(scope.memory((SIZE * 9 // 10,), BYTE)) == place


def test_little_memory_does_not_wait(scope: Scope) -> None:
    assert not scope.keeps(2**19 - 1)
    assert scope.keeps(2**19)
    scope.memory((2**19 - 1,), BYTE)
    assert scope.pool.waiting == 0


def test_a_pool_may_be_wasteful() -> None:
    pool = Pool()
    place = address(pool.array((SIZE,), BYTE))
    assert address(pool.array((SIZE // 2,), BYTE)) == place


def test_what_waits_takes_nothing_of_a_budget(scope: Scope) -> None:
    for _ in range(2):
        first, second = scope.memory((SIZE,), BYTE), scope.memory((SIZE,), BYTE)
        scope.adopt(first, "first")
        scope.adopt(second, "second")
        del first, second
        assert scope.host.live == 0
        assert scope.pool.waiting == 2 * SIZE
    scope.reserve(2 * SIZE, "what needs some of it")
    assert scope.pool.waiting == SIZE
    scope.reserve(3 * SIZE, "what needs all")
    assert scope.pool.waiting == 0


def test_nothing_waits_without_a_budget_or_after_a_scope() -> None:
    free = Scope({})
    free.begin()
    assert free.pool is None
    bounded = Scope({"host": SIZE})
    assert bounded.pool is None
    bounded.begin()
    kept = bounded.memory((SIZE,), BYTE)
    kept[:] = 7
    bounded.end()
    assert bounded.pool is None
    assert (kept == 7).all()


def test_arrays_in_huge_pages_start_with_one() -> None:
    whole = np.empty(HUGE + 1000, np.uint8)
    found = in_huge_pages(whole)
    assert (address(found) % HUGE, found.size) == (0, 1000)
    assert np.shares_memory(found, whole)


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w[:, None] * src.x


def test_results_are_right_in_memory_that_was_used(monkeypatch: Any, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(scopes, "WAITS", 0)
    nodes, edges, rng = 4000, 200_000, np.random.default_rng(3)
    dst, src = rng.integers(0, nodes, (2, edges))
    dst.sort()  # the order of edges is that of the file
    x, w = rng.random((nodes, 8), np.float32), rng.random(edges, np.float32)
    memory = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    paged = tg.Graph.open(memory.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    layer = Weighted()

    def step(graph: Any, scale: float) -> Any:
        named = x * np.float32(scale), w * np.float32(scale)
        of_x, of_w = (torch.from_numpy(array).requires_grad_() for array in named)
        out = layer(graph=graph, src={"x": of_x}, edge={"w": of_w})
        return out, *torch.autograd.grad((out * out).sum(), (of_x, of_w))

    with tg.execution(memory={"host": "8MiB"}) as run:
        for scale in (1.0, 2.0, 3.0):
            found = step(paged, scale)
            assert all(map(torch.equal, found, step(memory, scale)))
            del found
        report, pool = run.memory_report(), run._scope.pool
        assert pool.waiting > 0
        assert pool.waiting + report["live_bytes"]["host"] <= report["budget_bytes"]["host"] * 1.1
