"""Reading and writing past the page cache, against plain reads; and what does not go that way."""

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidFile
from tiga.runtime import direct
from tiga.runtime.arena import ROOMY, Arena
from tiga.runtime.container import Container
from tiga.runtime.direct import BLOCK, LEAST, DirectFile, fits
from tiga.runtime.pages import FileRows, Traffic

BYTES = 2 * 2**20 + 77


@pytest.fixture
def path(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).integers(0, 256, BYTES, np.uint8)
    (tmp_path / "file").write_bytes(values.tobytes())
    return tmp_path / "file"


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR)
    try:
        if DirectFile(fd).refused:
            pytest.skip("this file system reads through the page cache only")
        forget(fd)
        yield fd
    finally:
        os.close(fd)


def forget(fd: int) -> None:
    """Have nothing of a file in the page cache, or skip the test."""
    if not forgotten(fd):
        pytest.skip("this file system keeps what it has in the page cache")


def forgotten(fd: int) -> bool:
    """Ask the system to drop a file from the page cache; whether it did: where files lie in memory
    it does not, and nowhere has it to."""
    os.fsync(fd)
    for _ in range(10):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if not pages_in_memory(fd):
            return True
        time.sleep(0.01)
    return False


def pages_in_memory(fd: int) -> int:
    file = np.frombuffer(mmap.mmap(fd, 0, prot=mmap.PROT_READ), np.uint8)
    there = np.zeros(-(-file.size // mmap.PAGESIZE), np.uint8)
    start, told = (ctypes.c_void_p(array.ctypes.data) for array in (file, there))
    assert ctypes.CDLL(None).mincore(start, ctypes.c_size_t(file.size), told) == 0
    return int(np.count_nonzero(there & 1))


def once_read(path: Path, holds: Callable[[], bool]) -> bool:
    """Whether something holds when a file was just read. Other programs may need the memory."""
    return any(path.read_bytes() and holds() for _ in range(20))


def memory_for(offset: int, count: int) -> np.ndarray:
    whole = np.zeros(count + 2 * BLOCK, np.uint8)
    skip = (offset - whole.ctypes.data) % BLOCK
    return whole[skip : skip + count]


RANGES = [(0, BYTES), (BLOCK, LEAST), (77, LEAST), (BLOCK - 1, 2 * BLOCK + 2), (5000, BYTES - 5000)]


@pytest.mark.parametrize(("offset", "count"), RANGES)
def test_any_range_is_read_and_nothing_around_it(
    offset: int, count: int, path: Path, fd: int
) -> None:
    forget(fd)
    out = memory_for(offset, count)
    assert fits(out, offset)
    assert DirectFile(fd).read(out, offset)
    assert out.tobytes() == path.read_bytes()[offset : offset + count]


@pytest.mark.parametrize(("offset", "count"), RANGES)
def test_whole_blocks_are_written_and_the_rest_is_left(
    offset: int, count: int, path: Path, fd: int
) -> None:
    before = path.read_bytes()
    data = memory_for(offset, count)
    data[:] = 255 - np.frombuffer(before, np.uint8)[offset : offset + count]
    done = DirectFile(fd).write(data, offset)
    first = offset + -offset % BLOCK
    assert done % BLOCK == 0
    assert first + done <= offset + count < first + done + BLOCK
    after = path.read_bytes()
    assert after[:first] + after[first + done :] == before[:first] + before[first + done :]
    assert after[first : first + done] == data[first - offset :][:done].tobytes()


def test_a_file_that_ends_early(fd: int) -> None:
    for offset in (0, BLOCK * 3):
        with pytest.raises(EOFError):
            DirectFile(fd).read(memory_for(offset, BYTES + 1), offset)


def test_short_ranges_and_those_in_the_page_cache_are_left_to_it(path: Path, fd: int) -> None:
    file = DirectFile(fd)
    forget(fd)
    assert file.serves(0, LEAST)
    assert not file.serves(0, LEAST - 1)
    assert once_read(path, lambda: not file.serves(0, LEAST))


def test_rows_come_and_go_whatever_the_file_system_offers(
    path: Path, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows over a refusing file system, unaligned memory and warm pages: the same bytes."""

    def refuse(*given: object) -> int:
        raise OSError(errno.EINVAL, "refused")

    count, width, offset = 9000, 100, 24
    values = np.frombuffer(path.read_bytes(), np.uint8)[offset : offset + count * width]
    for refused in (False, True):
        if refused:
            monkeypatch.setattr(direct.os, "preadv", refuse)
            monkeypatch.setattr(direct.os, "pwritev", refuse)
            monkeypatch.setattr("tiga.runtime.pages.pread_into", plain_read)
        home = FileRows(fd, offset, count, width, Traffic(), None)
        for low in (0, 1, 123):
            forget(fd)
            out = memory_for(offset + low * width, (count - low) * width)
            home.read_into(low, out.reshape(-1, width))
            assert np.array_equal(out, values[low * width :])
            home.write(low, 255 - out.reshape(-1, width))
            home.write(low, out.reshape(-1, width))
        assert home.direct.refused == refused
    assert path.read_bytes()[offset : offset + count * width] == values.tobytes()


def plain_read(fd: int, block: np.ndarray, offset: int) -> None:
    block.reshape(-1)[:] = np.frombuffer(os.pread(fd, block.nbytes, offset), np.uint8)


def test_a_roomy_arena_places_long_arrays_as_a_file_does() -> None:
    for nbytes, step in ((ROOMY, BLOCK), (ROOMY - 1, 64)):
        arena = Arena(nbytes)
        arena.take(3, np.dtype(np.uint8))
        rows = arena.rows(LEAST // 100 + 1, 100, 7)
        assert (rows.ctypes.data - 700) % step == 0


def test_long_arrays_of_a_graph_start_at_blocks(tmp_path: Path) -> None:
    nodes, edges = 20_000, 60_000
    ends = np.random.default_rng(0).integers(0, nodes, (2, edges))
    graph = tg.Graph.from_coo(*ends, num_src=nodes, num_dst=nodes)
    path = graph.save(tmp_path / "g", {"src": {"x": np.ones((nodes, 3))}})
    container = Container(path)
    long = [e for e in container.entries.values() if e.nbytes >= 2**16]
    assert len(long) >= 5
    assert all(entry.offset % BLOCK == 0 for entry in long)
    assert not any(name.startswith("pad") for name in container.entries)
    container.verify()
    data = bytearray(path.read_bytes())
    data[long[1].offset - 1] ^= 1  # in the zeros before it
    path.write_bytes(bytes(data))
    with pytest.raises(InvalidFile):
        Container(path).verify()


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w[:, None] * src.x


@pytest.mark.parametrize("reach", [50, None])
def test_a_cold_graph_gives_the_bits_of_one_in_memory(
    reach: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large enough that pages are read, and results written, past the page cache."""
    torch = pytest.importorskip("torch")
    nodes, degree, width = 100_000, 4, 32
    rng, edges = np.random.default_rng(0), nodes * degree
    dst = np.arange(edges) // degree
    src = rng.integers(0, nodes, edges)
    if reach is not None:
        src = np.clip(dst + rng.integers(-reach, reach, edges), 0, nodes - 1)
    graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    x, w = rng.random((nodes, width), np.float32), rng.random(edges, np.float32)
    path = graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}})
    moved = {"read": 0, "write": 0}
    for way in moved:
        plain = getattr(DirectFile, way)

        def counted(self: Any, data: Any, at: int, way: str = way, plain: Any = plain) -> Any:
            moved[way] += 1
            return plain(self, data, at)

        monkeypatch.setattr(DirectFile, way, counted)

    def run(graph: Any, x: Any, w: Any) -> list[Any]:
        out = Weighted()(graph=graph, src={"x": x.requires_grad_()}, edge={"w": w.requires_grad_()})
        return [out, *torch.autograd.grad(out, (x, w), torch.ones(()).expand(out.shape))]

    paged = tg.Graph.open(path)
    expected = run(paged.in_memory(), *map(torch.from_numpy, (x, w)))
    fd = os.open(path, os.O_RDONLY)
    past_the_cache = forgotten(fd) and not DirectFile(fd).refused
    os.close(fd)
    named = (paged.field("src", "x"), paged.field("edge", "w"))
    with tg.execution(memory={"host": "14MiB"}, spill_dir=tmp_path):
        found = run(paged, *(torch.from_numpy(field.numpy()) for field in named))
    assert all(map(torch.equal, found, expected))
    assert not past_the_cache or min(moved.values()) > 0


def test_rows_know_whether_they_are_cached(path: Path, fd: int) -> None:
    rows = FileRows(fd, 24, 20_000, 100, Traffic(), None)
    forget(fd)
    assert not rows.is_cached
    assert once_read(path, lambda: rows.is_cached)
    assert FileRows(fd, BYTES, 0, 100, Traffic(), None).is_cached  # of nothing, all is there


def test_rows_that_are_expected_are_read_by_then(path: Path, fd: int) -> None:
    rows = FileRows(fd, 0, BYTES // 100, 100, Traffic(), None)
    forget(fd)
    for _ in range(3000):  # the system may have no memory for it now
        rows.expect([(100, 101), (15_000, 15_001), (0, BYTES // 100)])  # the last is long
        if all(rows.direct.is_cached(row * 100, 100) for row in (100, 15_000)):
            break
        time.sleep(0.01)
    else:
        pytest.fail("ranges that were expected are not in the page cache")
    assert not rows.is_cached
