"""Values that leave memory while other threads use them, and come back while they leave again."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.frontends.tensor.memory import absent
from tiga.frontends.tensor.storage import charge
from tiga.runtime.scope import Extent, Scope

ELEMENTS = 4096
PATIENCE = 300.0
A_MOMENT = 0.2
"""Seconds in which a thread that need not wait is done; more are never needed to pass."""


def by_numpy(x: tg.Tensor) -> None:
    x.numpy()[3] = 7.0


def in_place(x: tg.Tensor) -> None:
    x[3] = 7.0


@pytest.mark.parametrize("write", [by_numpy, in_place])
def test_what_is_written_while_a_value_leaves_is_kept(
    write: Callable[[tg.Tensor], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are copied when nobody can write them any more."""
    writers: list[Thread] = []
    spill = Scope.spill

    def slowly(scope: Scope, data: Any, what: str) -> Extent:
        extent = spill(scope, data, what)
        writers.append(Thread(target=write, args=(x,), daemon=True))
        writers[0].start()
        writers[0].join(A_MOMENT)
        return extent

    with tg.execution(spill_dir=tmp_path):
        x = tg.zeros(ELEMENTS)
        monkeypatch.setattr(Scope, "spill", slowly)
        x.spill()
        writers[0].join(PATIENCE)
        assert not writers[0].is_alive()
        assert x.sum().item() == 7.0


def test_a_value_that_is_written_stays() -> None:
    """And goes when the write has ended."""
    x = tg.zeros(ELEMENTS)
    assert x._buffer is not None
    x._buffer.writes.append(None)
    with pytest.raises(tg.errors.InvalidState, match="stay charged"):
        x.spill()
    x._buffer.writes.pop()
    assert x.spill().sum().item() == 0.0


def test_a_value_that_leaves_again_as_soon_as_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before whoever brought it back has charged it, or used it."""
    left = [2]

    def late(x: tg.Tensor) -> None:
        if left[0]:
            left[0] -= 1
            x.spill()
        charge(x)

    with tg.execution(memory={"host": "1MiB"}, eviction="lru", spill_dir=tmp_path):
        x, y = tg.arange(ELEMENTS), tg.ones(ELEMENTS)
        total = x + y
        x.spill()
        monkeypatch.setattr(absent, "charge", late)
        assert total.sum().item() == ELEMENTS * (ELEMENTS + 1) / 2
        assert left == [0]
        assert x.tolist() == list(range(ELEMENTS))


def test_what_the_disk_does_not_hold_is_there_as_before(tmp_path: Path) -> None:
    with tg.execution(memory={"nvme": ELEMENTS}, spill_dir=tmp_path) as run:
        x = tg.arange(ELEMENTS)
        view = x[5:9]
        with pytest.raises(MemoryError):
            x.spill()
        assert (x.residency["resident"], view.tolist()) == (True, [5, 6, 7, 8])
        x[6] = 0
        assert view.tolist() == [5, 0, 7, 8]
        assert run.memory_report()["live_bytes"]["nvme"] == 0


def test_rows_are_read_from_the_spill_file_until_they_are_back(tmp_path: Path) -> None:
    """What was there is another value's then."""
    with tg.execution(spill_dir=tmp_path):
        x = tg.tensor(np.arange(ELEMENTS).reshape(-1, 4))
        x.spill()
        assert x._buffer is not None
        gone, cell = x._buffer.absent, x._node.cell
        assert cell is not None
        np.testing.assert_array_equal(gone.rows_of(cell, 1, 3), [[4, 5, 6, 7], [8, 9, 10, 11]])
        assert x.sum().item() > 0
        assert gone.rows_of(cell, 1, 3) is None
