"""The tiers of memory on a real GPU: budgets, pinned buffers, transfers in order; no torch."""

import os
from itertools import pairwise

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidState, OutOfBudget
from tiga.runtime import Event, HierarchyRuntime
from tiga.runtime.driver import has_gpu
from tiga.runtime.hierarchy import PhysicalInstance

pytestmark = [
    pytest.mark.skipif(not has_gpu(), reason="no GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="Triton interprets"),
]
SIZE = 40 * 2**20 + 12


def filled(runtime: HierarchyRuntime, name: str, tier: str, data: bytes) -> PhysicalInstance:
    made = runtime.allocate(name, 1, tier=tier, capacity_bytes=len(data))
    made.buffer.write(data)
    return made


def test_bytes_go_through_every_tier_without_waiting_between() -> None:
    data = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8).tobytes()
    tiers = ("host-pinned", "device", "nvme", "device", "device", "host-pinned", "host")
    with HierarchyRuntime(io_workers=2) as runtime:
        places = [filled(runtime, "x", "host", data)]
        places += [runtime.allocate("x", 1, tier=t, capacity_bytes=SIZE) for t in tiers]
        events = [runtime.transfer(a, b) for a, b in pairwise(places)]
        assert all(isinstance(event, Event) for event in events)
        events[-1].wait()
        assert all(event.query() for event in events)
        assert places[-1].buffer.read() == data
        assert places[3].buffer.read(100, 50) == data[100:150]


def test_a_write_waits_for_the_transfers_that_read() -> None:
    first = bytes(range(256)) * 2**16
    with HierarchyRuntime() as runtime:
        source = filled(runtime, "x", "host-pinned", first)
        targets = [
            runtime.allocate("x", 1, tier=tier, capacity_bytes=len(first))
            for tier in ("device", "device", "host")
        ]
        for target in targets:
            runtime.transfer(source, target)
        source.buffer.write(b"\0" * len(first))  # after the three copies
        assert all(target.buffer.read() == first for target in targets)
        runtime.transfer(source, targets[0]).wait()
        assert targets[0].buffer.read(0, 4) == b"\0" * 4


def test_budgets_of_device_and_pinned_memory_are_kept() -> None:
    with HierarchyRuntime(budgets={"device": "1MiB", "host-pinned": 4096}) as runtime:
        held = runtime.allocate("a", 1, tier="device", capacity_bytes=2**20 - 100)
        with pytest.raises(OutOfBudget, match=r"tier 'device'.*'a' version 1"):
            runtime.allocate("b", 1, tier="hbm", capacity_bytes=101)
        with pytest.raises(OutOfBudget, match="tier 'host-pinned'"):
            runtime.allocate("b", 1, tier="pinned", capacity_bytes=4097)
        held.close()
        again = runtime.allocate("b", 1, tier="device", capacity_bytes=2**20)
        assert again.buffer.read(0, 8) == b"\0" * 8
        assert runtime.peak_live_bytes["device"] == 2**20
        with pytest.raises(InvalidState):
            held.buffer.read()


def test_more_than_the_device_has_is_refused_and_harms_nothing() -> None:
    with HierarchyRuntime() as runtime:
        with pytest.raises((OutOfBudget, MemoryError)):
            runtime.allocate("x", 1, tier="device", capacity_bytes=2**50)
        assert runtime.live_bytes["device"] == 0
    with pytest.raises(MemoryError):
        tg.empty(2**48, device="cuda")
    assert tg.ones(3, device="cuda").sum().item() == 3.0


def test_tensors_count_against_the_budget_of_the_device() -> None:
    with tg.execution(device="cuda", memory={"device": "3MiB"}) as run:
        x = tg.ones(2**18)
        y = (x * 2.0 + 1.0).realize()
        assert run.memory_report()["live_bytes"]["device"] == 2**21
        with pytest.raises(OutOfBudget, match=r"tier 'device': computing float32\[524288\]"):
            tg.concat([x, y]).realize()
        z = (x + y).realize()
        del x, y
        assert z.sum().item() == 4.0 * 2**18
        assert run.memory_report()["live_bytes"]["device"] == 2**20


def test_snapshots_and_copies_between_the_tiers_of_tensors(tmp_path: object) -> None:
    x = tg.tensor(np.arange(1000.0), device="cuda")
    tg.save(x, f"{tmp_path}/x.tiga")
    back = tg.load(f"{tmp_path}/x.tiga", device="cuda")
    assert back.device == "cuda"
    assert back.tolist() == x.tolist()
    host = x.cpu()
    assert host.spill().residency["backing"] == "temporary-spill"
    assert host.cuda().tolist() == x.tolist()
    assert x.spill().residency["backing"] == "temporary-spill"
    assert x.tolist() == back.tolist()


def test_offsets_past_two_to_the_thirty_first() -> None:
    count = 2**31 + 2**20
    x = tg.zeros(count, dtype=tg.int8, device="cuda")
    x[count - 3 :] = 7
    y = (x + 1).realize()
    assert y[count - 4 :].tolist() == [1, 8, 8, 8]
    wide = tg.reshape(x, (2**11 + 1, 2**20))
    assert tg.max(wide, axis=0)[2**20 - 4 :].tolist() == [0, 7, 7, 7]
    assert tg.max(wide, axis=1)[2**11 :].tolist() == [7]
    assert tg.flip(x, axis=0)[:4].tolist() == [7, 7, 7, 0]
