"""Files of values that are gone serve values of the same size within a scope."""

import os

import numpy as np
import pytest

import tiga as tg
from tiga.errors import OutOfBudget
from tiga.runtime import spare_files
from tiga.runtime.scope import Extent, Scope

SIZE = 4 * 4096


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(spare_files, "LEAST", 4096)


@pytest.fixture
def scope(tmp_path):
    found = Scope({}, tmp_path)
    found.spares.begin()
    yield found
    found.spares.end()


def own(scope, nbytes=SIZE):
    return Extent(scope, nbytes, "a value", alone=True)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_value_of_the_same_size_takes_the_file_of_one_that_is_gone(scope):
    first = own(scope)
    first.file.write(0, b"first" * 100)
    found = first.file
    first.close()
    assert scope.disk.live == 0
    second = own(scope)
    assert (second.file, second.start, scope.disk.live) == (found, 0, SIZE)
    second.file.write(0, b"second")
    assert bytes(second.read(0, 6)) == b"second"


def test_values_of_other_sizes_have_files_of_their_own(scope):
    first, keeps = own(scope), own(scope)
    found = first.file, keeps.file
    first.close()
    assert own(scope, 2 * SIZE).file not in found


def test_files_that_wait_and_those_in_use_never_exceed_what_was_in_use_at_a_time(scope):
    first = own(scope)
    fd = first.file.fd
    first.close()
    assert scope.spares.nbytes == SIZE
    larger = own(scope, 2 * SIZE)  # more than ever: nothing may wait beside it
    assert scope.spares.nbytes == 0
    assert not is_open(fd) or fd == larger.file.fd
    larger.close()
    for size in (SIZE, SIZE // 2, SIZE // 4):
        own(scope, size).close()
        assert scope.disk.live + scope.spares.nbytes <= scope.disk.peak == 2 * SIZE


def test_what_waits_takes_nothing_of_a_budget(tmp_path):
    scope = Scope({"nvme": 2 * SIZE}, tmp_path)
    scope.spares.begin()
    own(scope).close()
    kept = own(scope, 2 * SIZE)
    with pytest.raises(OutOfBudget):
        own(scope)
    kept.close()
    assert own(scope, 2 * SIZE).nbytes == 2 * SIZE
    scope.spares.end()


def test_nothing_waits_when_a_scope_has_ended(tmp_path):
    scope = Scope({}, tmp_path)
    scope.spares.begin()
    first, second = own(scope), own(scope)
    fds = first.file.fd, second.file.fd
    first.close()
    scope.spares.end()
    second.close()
    assert not any(is_open(fd) for fd in fds)


def test_small_files_are_closed_at_once(scope, monkeypatch):
    monkeypatch.setattr(spare_files, "LEAST", SIZE + 1)
    own(scope).close()
    assert scope.spares.nbytes == 0


def test_a_file_that_a_child_may_have_mapped_serves_nobody_else(scope):
    before = own(scope)
    waiting = own(scope)
    found = before.file, waiting.file
    waiting.close()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    before.close()
    assert scope.spares.nbytes <= SIZE
    assert own(scope).file not in found


def test_a_full_disk_takes_what_waits(scope):
    kept = own(scope)
    own(scope).close()
    assert scope.spares.nbytes == SIZE
    tried = []

    def place():
        tried.append(scope.spares.nbytes)
        if scope.spares.nbytes:
            raise OSError("no space left")
        return "placed"

    assert scope._placed(place) == "placed"
    assert tried == [SIZE, 0]
    kept.close()


def test_results_that_memory_does_not_hold_are_right_in_files_of_earlier_ones():
    n = 1 << 16
    x = tg.arange(n, dtype=tg.int32).realize()
    with tg.execution(memory={"host": "192KiB"}, eviction="lru") as run:
        for step in range(1, 4):
            found = (x * step).realize()
            assert found.residency["backing"] == "mapped-spill"
            np.testing.assert_array_equal(found.numpy(), np.arange(n, dtype=np.int32) * step)
            del found
        assert run._scope.spares.nbytes > 0
    assert run._scope.spares.nbytes == 0
