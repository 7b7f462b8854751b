"""What killed processes leave in a folder goes; what living ones have there stays."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidState
from tiga.paging.results import spilled_array
from tiga.runtime import spill
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import Traffic
from tiga.runtime.scope import Scope
from tiga.runtime.spill import SpillFile, open_named, process_name, remove_of_dead

PREFIX = ".tiga-spill-"
DEAD = f"{PREFIX}999999999-1-"


def forked(work: Callable[[], object]) -> int:
    """Start `work` in a forked child; its number."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() is None else 2
        finally:
            os._exit(code)
    return pid


def end_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_killed_before_it_unlinks_leaves_what_the_next_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def dies() -> None:
        monkeypatch.setattr(Path, "unlink", lambda path: os.kill(os.getpid(), signal.SIGKILL))
        SpillFile(tmp_path)

    assert end_of(forked(dies)) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    with SpillFile(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_killed_at_random_without_nameless_files(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def makes() -> None:
        while True:
            with SpillFile(tmp_path) as file:
                file.write(file.allocate(4), b"tiga")

    with SpillFile(tmp_path) as mine:
        start = mine.allocate(4)
        mine.write(start, b"mine")
        for _ in range(40):
            pair = forked(makes), forked(makes)  # two at once clean up after one another
            time.sleep(rng.uniform(0, 0.02))
            for pid in pair:
                os.kill(pid, signal.SIGKILL)
            assert [end_of(pid) for pid in pair] == [-signal.SIGKILL] * 2
            assert bytes(mine.read(start, 4)) == b"mine"
    SpillFile(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_use_stays_whatever_its_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another container's, whose processes cannot be seen here."""
    with monkeypatch.context() as context:
        context.setattr(spill, "process_name", lambda: "999999999-1")
        fd, path = open_named(tmp_path, PREFIX, 0o600)
    assert remove_of_dead(tmp_path, PREFIX) == 0
    os.close(fd)
    assert remove_of_dead(tmp_path, PREFIX) == 1
    assert not path.exists()


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    mine, number = process_name(), os.getpid()
    (tmp_path / f"{PREFIX}{number}-1-ab").touch()  # started at another time
    (tmp_path / f"{PREFIX}{mine}-ab").touch()
    assert remove_of_dead(tmp_path, PREFIX) == 1
    assert [p.name for p in tmp_path.iterdir()] == [f"{PREFIX}{mine}-ab"]


def test_only_ones_own_plain_files_go(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    target.write_bytes(b"x")
    (tmp_path / f"{DEAD}link").symlink_to(target)
    (tmp_path / f"{DEAD}folder").mkdir()
    os.mkfifo(tmp_path / f"{DEAD}pipe")  # opening one waits for its other end
    (tmp_path / f"{PREFIX}notes").touch()
    if os.getuid() == 0:
        (tmp_path / f"{DEAD}other").touch()
        os.chown(tmp_path / f"{DEAD}other", 65534, 65534)
    before = sorted(tmp_path.iterdir())
    assert remove_of_dead(tmp_path, PREFIX) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_may_be_written_but_not_listed(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    for folder in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        folder.chmod(0o755)
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / f"{DEAD}ab").touch()
    closed.chmod(0o733)

    def as_nobody() -> None:
        os.setuid(65534)
        with SpillFile(closed) as file:
            start = file.allocate(4)
            file.write(start, b"tiga")
            assert bytes(file.read(start, 4)) == b"tiga"

    assert end_of(forked(as_nobody)) == 0
    assert [p.name for p in closed.iterdir()] == [f"{DEAD}ab"]


def test_a_forked_process_spills_to_a_file_of_its_own(tmp_path: Path) -> None:
    with tg.execution(spill_dir=tmp_path):
        parents = tg.arange(3000).spill()

        def child() -> None:
            own = tg.full(3000, 7).spill()
            with pytest.raises(InvalidState, match="realize"):
                parents.numpy()
            assert (own.numpy() == 7).all()
            others = [tg.full(3000, i).spill() for i in range(20)]
            assert [x[0].item() for x in others] == list(range(20))

        assert end_of(forked(child)) == 0
        later = [tg.full(3000, -i).spill() for i in range(20)]
        assert (parents.numpy() == np.arange(3000)).all()
        assert [x[0].item() for x in later] == [-i for i in range(20)]


def test_a_forked_process_that_frees_a_value_cuts_nothing_off(tmp_path: Path) -> None:
    with tg.execution(spill_dir=tmp_path):
        held = [tg.arange(3000).spill()]
        assert end_of(forked(held.clear)) == 0
        assert held[0].sum().item() == 3000 * 2999 // 2


def test_a_forked_process_keeps_results_that_are_mapped_from_a_file(tmp_path: Path) -> None:
    """Whatever its parent does with them meanwhile; and its writes are its own."""
    traffic, scope = Traffic(), Scope(spill_dir=tmp_path)

    def mapped_array(value: float) -> np.ndarray:
        found, _ = spilled_array(scope, traffic, (5000, 4), np.dtype(np.float32))
        found[:] = value
        return found

    held, kept = [mapped_array(1.0)], mapped_array(3.0)
    told, tell = os.pipe()

    def child() -> None:
        os.read(told, 1)  # until its parent freed the first
        assert (held[0] == 1).all()
        kept[:] *= 2
        assert (kept == 6).all()

    pid = forked(child)
    held.clear()
    others = [mapped_array(7.0) for _ in range(3)]
    os.write(tell, b"x")
    assert end_of(pid) == 0
    assert len(others) == 3
    assert (kept == 3).all()
    kept[:] *= 2  # still reaches the file that pages are read from
    mapped = file_at(kept.ctypes.data, 5000 * 16)
    assert mapped is not None
    assert os.pread(mapped.fd, 4, mapped.offset) == np.float32(6).tobytes()


def test_a_forked_process_moves_instances_on_a_thread_of_its_own() -> None:
    with tg.runtime.HierarchyRuntime() as runtime:
        block, copy = (runtime.allocate("x", 0, tier="host", capacity_bytes=4) for _ in range(2))
        runtime.transfer(block, copy).wait()

        def child() -> None:
            signal.alarm(300)  # rather than wait for a thread that is not there
            block.buffer.write(b"tiga")
            for _ in range(4):
                runtime.transfer(block, copy).wait()
            assert copy.buffer.read() == b"tiga"

        assert end_of(forked(child)) == 0
        assert copy.buffer.read() == bytes(4)
