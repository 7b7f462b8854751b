"""Graphs written from edge lists: the file that `save` writes, whatever the chunks and the memory,
and whatever happened on the way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga.errors import InvalidFile, InvalidIndex, InvalidState, InvalidType, InvalidValue
from tiga.relations.spool import Spool
from tiga.runtime.container import Container

NODES, EDGES = 900, 30_000


def edge_list(seed: int = 0, edges: int = EDGES, hubs: bool = True) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, edges), rng.integers(0, NODES, edges)
    if hubs:
        dst[: edges // 3] = 7
        src[edges // 2 : edges // 2 + edges // 4] = 11
    return src, dst, rng.random((edges, 2)).astype(np.float32)


def chunks_of(arrays: tuple[np.ndarray, ...], size: int) -> Iterator[Any]:
    src, dst, w = arrays
    for low in range(0, len(src), size):
        part = slice(low, low + size)
        yield src[part], dst[part], {"w": w[part]}


def same_content(left: Path, right: Path) -> bool:
    a, b = Container(left), Container(right)
    assert a.info == b.info
    assert set(a.entries) == set(b.entries)
    return all(np.array_equal(a.read(name), b.read(name)) for name in a.entries)


@pytest.mark.parametrize("size", [777, EDGES])
@pytest.mark.parametrize("memory", [0, "64KiB", "1GiB"])
def test_the_file_is_the_one_that_save_writes(size: int, memory: Any, tmp_path: Path) -> None:
    src, dst, w = arrays = edge_list()
    x = np.arange(NODES * 2.0).reshape(NODES, 2)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    saved = graph.save(tmp_path / "a", {"src": {"x": x}, "edge": {"w": w}})
    written = tg.Graph.write_csr(
        tmp_path / "b", chunks_of(arrays, size), num_nodes=NODES, memory=memory,
        fields={"src": {"x": x}},
    )  # fmt: skip
    assert same_content(saved, written)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("bins", [7, 1 << 16])
@pytest.mark.parametrize("memory", [0, "1GiB"])
def test_edges_of_a_row_in_order_of_their_sources(
    bins: int, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row has 10,000 edges, 5,000 of them from one source: more than are handled at a time."""
    monkeypatch.setattr("tiga.relations.long_rows.BINS", bins)
    src, dst, w = arrays = edge_list()
    src[:5000] = 3
    written = tg.Graph.write_csr(
        tmp_path / "a", chunks_of(arrays, 777), num_nodes=NODES, memory=memory, sort_sources=True
    )
    order = np.lexsort((src, dst))
    graph = tg.Graph.from_coo(src[order], dst[order], num_src=NODES, num_dst=NODES)
    saved = graph.save(tmp_path / "b", {"edge": {"w": w[order]}})
    assert same_content(saved, written)
    assert Container(written).info["sources_ascend"] == 1


@pytest.mark.parametrize("memory", [0, "1GiB"])
def test_the_file_says_whether_sources_ascend(memory: Any, tmp_path: Path) -> None:
    """The last edge of a row of several pieces is out of order, or is not."""
    for number, last in enumerate((NODES - 1, 0)):
        src = np.sort(edge_list()[0])
        src[-1], dst = last, np.full(EDGES, 7)
        path = tg.Graph.write_csr(
            tmp_path / str(number), [(src, dst)], num_nodes=NODES, memory=memory
        )
        assert Container(path).info["sources_ascend"] == int(last > 0)


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=60),
    size=st.integers(1, 30),
)
def test_any_small_list(ends: list[tuple[int, int]], size: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("small")
    src, dst = (np.array([e[i] for e in ends], np.int64) for i in (0, 1))
    chunks = [(src[i : i + size], dst[i : i + size]) for i in range(0, len(src), size)]
    saved = tg.Graph.from_coo(src, dst, num_src=7, num_dst=5).save(folder / "a")
    written = tg.Graph.write_csr(folder / "b", iter(chunks), num_src=7, num_dst=5, memory=0)
    assert same_content(saved, written)


def test_progress_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, float]] = []
    chunks = list(chunks_of(edge_list(), 10_000))
    tg.Graph.write_csr(
        tmp_path / "a",
        chunks,
        num_nodes=NODES,
        progress=lambda what, share: told.append((what, share)),
    )
    assert {what for what, _ in told} >= {"reading", "partitioning", "sorting", "transposing"}
    assert all(0 <= share <= 1 for _, share in told)
    tg.Graph.write_csr(tmp_path / "b", chunks, num_nodes=NODES, progress=True)
    assert "sorting" in capsys.readouterr().err
    hub = [(np.zeros(9000, int),) * 2]  # the rows after it have a bucket that is empty
    tg.Graph.write_csr(tmp_path / "c", hub, num_nodes=NODES, progress=True, memory=0)
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    full = [line.split("[")[0].strip() for line in lines if "100%" in line]
    assert full == ["reading", "partitioning", "sorting", "transposing"]


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        ([([0, 1], [1, 99])], InvalidIndex, "edge position 1"),
        ([([0], [0]), ([-1], [0])], InvalidIndex, "edge position 1"),
        ([([0, 1], [1])], InvalidValue, "equal lengths"),
        ([([0], [1]), ([0], [1], {"w": [1.0]})], InvalidValue, "first chunk"),
        ([([0.5], [1])], InvalidType, "integers"),
        ([[0]], InvalidType, "chunk 0"),
        (3, InvalidType, "iterable of chunks"),
        ([([0], [1], {"src": [1.0]})], InvalidValue, "called"),
        ([3], InvalidType, "chunk 0"),
    ],
)
def test_bad_chunks_are_refused(chunks: list, error: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        tg.Graph.write_csr(tmp_path / "g", chunks, num_nodes=9)
    assert not (tmp_path / "g").exists()


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    for options in ({}, {"num_src": 1}, {"num_nodes": 1, "num_src": 1, "num_dst": 1},
                    {"num_nodes": 2, "fields": {"edge": {"w": [1]}}},
                    {"num_nodes": 2, "fields": {"src": {"w": [1]}}},
                    {"num_nodes": 2, "memory": "1GB"}):  # fmt: skip
        with pytest.raises(InvalidValue):
            tg.Graph.write_csr(tmp_path / "g", [], **options)
    path = tg.Graph.write_csr(tmp_path / "g", [], num_nodes=2)
    assert tg.Graph.open(path).num_edges == 0
    with pytest.raises(FileExistsError, match="overwrite"):
        tg.Graph.write_csr(path, [], num_nodes=2)


@pytest.mark.parametrize("text", ["{bad", "[]", '{"format": 1}', ""])
def test_altered_notes_are_refused(text: str, tmp_path: Path) -> None:
    folder = tmp_path / ".g.tiga-writing"
    folder.mkdir()
    (folder / "state.json").write_text(text)
    with pytest.raises(InvalidFile, match="remove the folder"):
        tg.Graph.write_csr(tmp_path / "g", [([0], [1])], num_nodes=2)
    assert not (tmp_path / "g").exists()


def test_an_interrupted_list_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiga.relations.spool.SYNC_BYTES", 1)
    arrays, seen = edge_list(), []

    def failing() -> Iterator[Any]:
        for i, chunk in enumerate(chunks_of(arrays, 1000)):
            if i == 17:
                raise KeyboardInterrupt
            yield chunk

    path = tmp_path / "g"
    with pytest.raises(KeyboardInterrupt):
        tg.Graph.write_csr(path, failing(), num_nodes=NODES)
    with pytest.raises(InvalidFile, match="other counts"):
        tg.Graph.write_csr(path, [], num_nodes=5)
    spool = Spool(path, NODES, NODES, "int32")
    assert spool.chunks == 17
    with pytest.raises(InvalidState, match="another process"):
        tg.Graph.write_csr(path, [], num_nodes=NODES)
    spool.close()
    for chunk in chunks_of(arrays, 1000):
        seen.append(chunk)
    others = list(chunks_of(edge_list(seed=1), 1000))
    for wrong in (others, seen[:3]):
        with pytest.raises(InvalidFile, match="other chunks"):
            tg.Graph.write_csr(path, wrong, num_nodes=NODES)
    tg.Graph.write_csr(path, seen, num_nodes=NODES)
    graph = tg.Graph.from_coo(*arrays[:2], num_src=NODES, num_dst=NODES)
    assert same_content(path, graph.save(tmp_path / "a", {"edge": {"w": arrays[2]}}))
