"""What must hold whatever happens: processes killed at any moment, full disks, folders shared."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tiga as tg
from tests.memory.test_writer import NODES, chunks_of, edge_list, same_content
from tiga.errors import InvalidState

KILLS = 70
"""Per kind of work: with the three kinds, more than 200."""


def in_child(work: Callable[[], None], seconds: float | None = None) -> int:
    """Do `work` in a forked child, killed after so many seconds; how the child ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_killed_save_leaves_the_old_file_or_the_new(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "x.tiga"
    tg.save(tg.full(50_000, -1), path)

    def saves() -> None:
        for i in range(1000):
            tg.save(tg.full(50_000, i), path, overwrite=True)

    ends = []
    for _ in range(KILLS):
        ends.append(in_child(saves, rng.uniform(0, 0.03)))
        values = tg.load(path).numpy()
        assert (values == values[0]).all()
    assert ends.count(-signal.SIGKILL) == KILLS
    tg.save(tg.ones(1), tmp_path / "y.tiga")  # the next save removes what the killed ones left
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tiga", "y.tiga"]


def test_a_killed_spill_leaves_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    def spills() -> None:
        with tg.execution(memory={"host": "64KiB"}, spill_dir=tmp_path, eviction="lru"):
            kept = [tg.full(2000, float(i)) for i in range(1000)]
            while True:
                assert all(x[0].item() == i for i, x in enumerate(kept))

    with tg.execution(spill_dir=tmp_path):
        mine = tg.arange(1000).spill()
        for _ in range(KILLS):
            assert in_child(spills, rng.uniform(0, 0.03)) == -signal.SIGKILL
        assert list(tmp_path.iterdir()) == []
        assert mine.sum().item() == 499_500


def test_a_killed_writer_is_finished_by_the_next(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiga.relations.spool.SYNC_BYTES", 20_000)
    arrays = edge_list()
    graph = tg.Graph.from_coo(*arrays[:2], num_src=NODES, num_dst=NODES)
    expected = graph.save(tmp_path / "expected", {"edge": {"w": arrays[2]}})
    path, killed, taken_up = tmp_path / "g", 0, 0

    def write() -> None:
        tg.Graph.write_csr(path, chunks_of(arrays, 500), num_nodes=NODES, memory=0)

    while killed < KILLS:
        end = in_child(write, rng.uniform(0, 0.12))
        killed += end == -signal.SIGKILL
        taken_up += (tmp_path / ".g.tiga-writing" / "state.json").exists()
        if killed % 10 == 9 and not path.exists():
            write()
        if path.exists():
            assert same_content(path, expected)
            path.unlink()
    assert taken_up > KILLS // 4
    with contextlib.suppress(FileExistsError):
        write()
    assert same_content(path, expected)
    assert {p.name for p in tmp_path.iterdir()} <= {"expected", "g", ".g.tiga-writing"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True)
    except OSError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_a_save_and_leaves_no_file(small_disk: Path) -> None:
    path = tg.save(tg.ones(1000), small_disk / "x.tiga")
    with pytest.raises(OSError, match="No space") as caught:
        tg.save(tg.zeros(2**20), path, overwrite=True)
    assert caught.value.errno == errno.ENOSPC
    assert str(path) in str(caught.value)
    assert tg.load(path).sum().item() == 1000
    assert [p.name for p in small_disk.iterdir()] == ["x.tiga"]


def test_a_full_disk_stops_a_spill_and_keeps_the_value(small_disk: Path) -> None:
    with tg.execution(spill_dir=small_disk) as run:
        x = tg.full(2**20, 3.0)
        with pytest.raises(OSError, match="free disk space"):
            x.spill()
        assert x.residency["resident"]
        assert x[17].item() == 3.0
        assert run.memory_report()["live_bytes"]["nvme"] == 0
        assert tg.ones(100).spill().sum().item() == 100


def test_a_full_disk_stops_an_eviction_and_keeps_the_values(small_disk: Path) -> None:
    memory = {"host": 2 * 2**20}
    with tg.execution(memory=memory, spill_dir=small_disk, eviction="lru"):
        kept = [tg.full(2**17, float(i)) for i in range(4)]
        with pytest.raises((OSError, MemoryError)):
            kept += [tg.full(2**17, float(i)) for i in range(4, 9)]
        assert [x[5].item() for x in kept[:4]] == [0.0, 1.0, 2.0, 3.0]


def test_a_full_disk_stops_the_writer_which_then_goes_on(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 850_000)
    arrays = edge_list(edges=6000)

    def write() -> Path:
        return tg.Graph.write_csr(small_disk / "g", chunks_of(arrays, 500), num_nodes=NODES)

    with pytest.raises(OSError, match="No space"):
        write()
    assert not (small_disk / "g").exists()
    ballast.unlink()
    graph = tg.Graph.from_coo(*arrays[:2], num_src=NODES, num_dst=NODES)
    expected = graph.save(small_disk.parent / "expected", {"edge": {"w": arrays[2]}})
    assert same_content(write(), expected)


def test_a_limit_on_file_sizes_is_reported_too(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            tg.save(tg.zeros(100_000), tmp_path / "x.tiga")
        except OSError as error:
            os._exit(0 if error.errno == errno.EFBIG else 2)
        os._exit(3)

    assert in_child(limited) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    def as_nobody() -> None:
        os.setuid(65534)
        refused = 0
        for attempt in (
            lambda: tg.save(tg.ones(1), tmp_path / "locked" / "x"),
            lambda: tg.execution(spill_dir=tmp_path / "locked").__enter__(),
            lambda: tg.load(tmp_path / "locked" / "x"),
            lambda: tg.Graph.write_csr(tmp_path / "locked" / "g", [], num_nodes=1),
        ):
            try:
                attempt()
            except OSError:
                refused += 1
        os._exit(refused)

    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    tmp_path.parent.parent.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    (tmp_path / "locked").mkdir(mode=0o700)
    assert in_child(as_nobody) == 4


def test_two_processes_share_a_spill_folder(tmp_path: Path) -> None:
    def spills() -> None:
        with tg.execution(spill_dir=tmp_path):
            for i in range(200):
                x = tg.full(3000, float(i)).spill()
                assert (x.numpy() == i).all()

    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            spills()
            code = 0
        os._exit(code)
    spills()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_two_processes_do_not_write_one_graph(tmp_path: Path) -> None:
    read, write = os.pipe()

    def slow() -> Iterator[object]:
        yield [0], [1]
        os.write(write, b"x")
        time.sleep(30)

    pid = os.fork()
    if pid == 0:
        tg.Graph.write_csr(tmp_path / "g", slow(), num_nodes=2)
        os._exit(0)
    os.read(read, 1)
    with pytest.raises(InvalidState, match="another process"):
        tg.Graph.write_csr(tmp_path / "g", [], num_nodes=2)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    tg.Graph.write_csr(tmp_path / "g", [([0], [1])], num_nodes=2)
    assert tg.Graph.open(tmp_path / "g").num_edges == 1
