"""The hierarchy runtime: budgets, transfers in order, bundles, streams."""

import json
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiga as tg
from tiga.errors import (
    InvalidState,
    InvalidType,
    InvalidValue,
    OutOfBudget,
    UnknownName,
    UnsupportedByBackend,
)
from tiga.runtime import Access, Bundle, Event, HierarchyRuntime, Resource, Stream, Task
from tiga.runtime.driver import has_gpu
from tiga.runtime.spill import ALIGNMENT, SpillFile, remove_leftovers
from tiga.runtime.tiers import Account, parse_budgets, parse_size

SIZE = 3 * ALIGNMENT + 5


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [(0, 0), ("7", 7), ("7B", 7), ("2 KiB", 2048), ("1MiB", 2**20), ("3GiB", 3 * 2**30),
     ("1TiB", 2**40)],
)  # fmt: skip
def test_sizes(text: object, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("bad", ["1GB", "1.5GiB", 1.0, True, -1, "", "GiB", "-1B", "1 K", None])
def test_bad_sizes_are_refused(bad: object) -> None:
    with pytest.raises(InvalidValue, match="size"):
        parse_size(bad)


def test_a_tier_has_one_budget() -> None:
    assert parse_budgets({"ram": 1, "ssd": "1KiB"}) == {"host": 1, "nvme": 1024}
    with pytest.raises(InvalidValue, match="given twice"):
        parse_budgets({"ram": 1, "host": 2})
    with pytest.raises(InvalidValue, match="expected one of"):
        parse_budgets({"floppy": 1})


def test_refusal_names_tier_need_live_budget_and_holders() -> None:
    with HierarchyRuntime(budgets={"host": 10}) as runtime:
        runtime.allocate("weights", 3, tier="host", capacity_bytes=6)
        with pytest.raises(MemoryError) as caught:
            runtime.allocate("more", 0, tier="ram", capacity_bytes=5)
        for part in ("'host'", "'more'", "5 bytes", "6 of 10", "'weights' version 3"):
            assert part in str(caught.value)
        assert runtime.live_bytes["host"] == 6
        runtime.latest("weights").close()
        runtime.allocate("more", 0, tier="ram", capacity_bytes=5)
        assert runtime.peak_live_bytes["host"] == 6


def test_bytes_survive_the_disk() -> None:
    data = os.urandom(SIZE)
    with HierarchyRuntime(io_workers=3) as runtime:
        chain = [
            runtime.allocate("x", 1, tier=tier, capacity_bytes=SIZE)
            for tier in ("host", "nvme", "host", "nvme", "nvme", "host")
        ]
        chain[0].buffer.write(data)
        for source, target in pairwise(chain):
            runtime.transfer(source, target)
        assert chain[-1].buffer.read() == data
        assert chain[1].buffer.read(7, 9) == data[7:16]


def test_a_write_waits_for_the_reads_before_it() -> None:
    gate, stream = Event(), Stream()
    with HierarchyRuntime() as runtime:
        a, b = (runtime.allocate("x", 0, tier="host", capacity_bytes=4) for _ in range(2))
        a.buffer.write(b"old!")
        stream.submit(gate.wait)
        done = runtime.transfer(a, b, stream=stream)
        writer = threading.Thread(target=lambda: a.buffer.write(b"new!"))
        writer.start()
        assert not done.query()
        gate.set()
        writer.join()
        assert (a.buffer.read(), b.buffer.read()) == (b"new!", b"old!")
    stream.close()


def test_closing_waits_for_readers_and_then_refuses() -> None:
    gate, stream = Event(), Stream()
    with HierarchyRuntime() as runtime:
        a, b = (runtime.allocate("x", 0, tier="host", capacity_bytes=4) for _ in range(2))
        a.buffer.write(b"kept")
        stream.submit(gate.wait)
        runtime.transfer(a, b, stream=stream)
        threading.Timer(0.05, gate.set).start()
        a.close()
        assert b.buffer.read() == b"kept"
        with pytest.raises(InvalidState, match="closed"):
            runtime.transfer(a, b)
        with pytest.raises(InvalidState, match="closed"):
            a.buffer.read()
    stream.close()


def test_a_failed_transfer_fails_its_readers_and_can_be_repeated() -> None:
    with HierarchyRuntime() as runtime:
        a, b = (runtime.allocate("x", 0, tier="host", capacity_bytes=4) for _ in range(2))
        with Stream() as stream:
            stream.submit(lambda: 1 / 0)
            stream.wait_event(stream.record_event())
            runtime.transfer(a, b, stream=stream)
            with pytest.raises(ZeroDivisionError):
                b.buffer.read()
        a.buffer.write(b"next")
        runtime.transfer(a, b).wait()
        assert b.buffer.read() == b"next"


def test_latest_and_resolve_prefer_new_and_fast() -> None:
    with HierarchyRuntime() as runtime:
        for version, tier in ((0, "host"), (2, "nvme"), (2, "host"), (1, "host")):
            runtime.allocate("x", version, tier=tier, capacity_bytes=1)
        assert (runtime.latest("x").version, runtime.latest("x").tier) == (2, "host")
        assert runtime.latest("x", tier="ssd").tier == "nvme"
        assert runtime.resolve("x", 1).version == 1
        for find in (lambda: runtime.latest("y"), lambda: runtime.resolve("x", 9)):
            with pytest.raises(UnknownName):
                find()
        with pytest.raises(KeyError):
            runtime.latest("x", tier="device")


def test_the_runtime_offers_its_classes() -> None:
    with tg.runtime.HierarchyRuntime() as runtime:
        block = runtime.allocate("x", 0, tier="host", capacity_bytes=4)
        page = runtime.allocate("x", 0, tier="nvme", capacity_bytes=4)
        assert isinstance(block.buffer, tg.runtime.Buffer)
        stream = tg.runtime.Stream("mine")
        assert isinstance(runtime.transfer(block, page, stream=stream), tg.runtime.Event)
        stream.close()


@pytest.mark.parametrize("tier", ["host", "nvme"])
def test_what_was_freed_is_named_with_the_line_that_used_it(tier: str) -> None:
    with HierarchyRuntime() as runtime:
        closed = runtime.allocate("x", 0, tier=tier, capacity_bytes=4)
        other = runtime.allocate("x", 0, tier=tier, capacity_bytes=4)
        buffer = closed.buffer
        closed.close()
        for use in (
            buffer.read,
            lambda: buffer.write(b"tiga"),
            lambda: runtime.transfer(closed, other),
            lambda: runtime.transfer(other, closed),
        ):
            with pytest.raises(InvalidState, match=r"test_hierarchy\.py:\d+: .*close"):
                use()
        with pytest.raises(InvalidType, match="expected bytes"):
            other.buffer.write("text")
        with pytest.raises(InvalidType, match="got str"):
            runtime.transfer(other, "x")
        with pytest.raises(InvalidValue, match="twice; allocate a second"):
            runtime.transfer(other, other)
        with pytest.raises(InvalidValue, match=r"expected one of .*host"):
            runtime.allocate("x", 0, tier="remote", capacity_bytes=4)
    with pytest.raises(InvalidState, match=r"test_hierarchy\.py:\d+: this HierarchyRuntime"):
        runtime.allocate("x", 0, tier=tier, capacity_bytes=4)


def test_what_does_not_belong_together_is_refused() -> None:
    with HierarchyRuntime() as runtime:
        a = runtime.allocate("x", 0, tier="host", capacity_bytes=4)
        others = [
            runtime.allocate("y", 0, tier="host", capacity_bytes=4),
            runtime.allocate("x", 1, tier="host", capacity_bytes=4),
            runtime.allocate("x", 0, tier="host", capacity_bytes=5),
            a,
        ]
        for other in others:
            with pytest.raises(InvalidValue, match="one name, version and size"):
                runtime.transfer(a, other)
        with pytest.raises(InvalidValue, match="not allocated"):
            runtime.allocate("x", 0, tier="smem", capacity_bytes=1)
        with pytest.raises(InvalidValue, match="within the 4 bytes"):
            a.buffer.write(b"12345")
    with pytest.raises(InvalidState, match="closed"):
        runtime.allocate("x", 0, tier="host", capacity_bytes=4)


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_its_tiers_say_so_and_stay_uncharged() -> None:
    with HierarchyRuntime(budgets={"device": 8}) as runtime:
        for tier in ("device", "pinned"):
            with pytest.raises(UnsupportedByBackend, match="NVIDIA"):
                runtime.allocate("x", 0, tier=tier, capacity_bytes=4)
        assert set(runtime.live_bytes.values()) == {0}


@pytest.mark.gpu
def test_bytes_survive_the_device() -> None:
    data = os.urandom(SIZE)
    with HierarchyRuntime(budgets={"device": SIZE}) as runtime:
        chain = [
            runtime.allocate("x", 1, tier=tier, capacity_bytes=SIZE)
            for tier in ("host-pinned", "device", "nvme", "host")
        ]
        chain[0].buffer.write(data)
        for source, target in pairwise(chain):
            runtime.transfer(source, target)
        assert chain[-1].buffer.read() == data
        with pytest.raises(OutOfBudget):
            runtime.allocate("y", 0, tier="cuda", capacity_bytes=1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000)), max_size=40))
def test_extents_never_overlap_and_the_file_shrinks(steps: list[tuple[int, int]]) -> None:
    with SpillFile() as file:
        held: list[tuple[int, bytes]] = []
        for action, size in steps:
            if action and held:
                start, data = held.pop(action % len(held))
                assert bytes(file.read(start, len(data))) == data
                file.free(start, len(data))
            else:
                data = os.urandom(size)
                start = file.allocate(size)
                file.write(start, data)
                held.append((start, data))
        for start, data in held:
            assert bytes(file.read(start, len(data))) == data
            file.free(start, len(data))
        assert file.nbytes == 0


def test_no_spill_file_is_seen_and_leftovers_of_the_dead_go(tmp_path: Path) -> None:
    dead, foreign = tmp_path / ".tiga-spill-999999999-1-ab", tmp_path / ".tiga-spill-x"
    alive = tmp_path / f".tiga-spill-{os.getpid()}-{_start()}-cd"
    for path in (dead, foreign, alive):
        path.write_bytes(b"x")
    assert remove_leftovers(tmp_path) == 1
    with SpillFile(tmp_path) as file:
        file.write(file.allocate(10), b"0123456789")
        assert sorted(tmp_path.iterdir()) == sorted([foreign, alive])


def _start() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="existing directory"):
        HierarchyRuntime(nvme_directory=tmp_path / "none")


X = Resource("x", "host", 4)
WRITE, READ = (Access("x", "write"),), (Access("x", "read"),)


def test_a_bundle_runs_in_dependency_order() -> None:
    bundle = Bundle((X,), (Task("b", "show", READ, ("a",)), Task("a", "fill", WRITE)))
    seen: list[bytes] = []
    symbols = {
        "fill": lambda x: x.buffer.write(b"done"),
        "show": lambda x: seen.append(x.buffer.read()),
    }
    with tg.runtime.HierarchyRuntime() as runtime:
        bundle.run(bundle.allocate(runtime), symbols)
        with pytest.raises(InvalidValue, match="fill"):
            bundle.run(bundle.allocate(runtime), {"show": print})
    assert seen == [b"done"]


def test_partitions_of_one_partitioning_need_no_order() -> None:
    halves = [Task(f"t{i}", "f", (Access("x", "write", 0, "rows", i),)) for i in range(2)]
    assert Bundle((X,), tuple(halves)).order == tuple(halves)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((Task("a", "f", WRITE), Task("b", "f", READ)), "neither depends"),
        ((Task("a", "f", WRITE), Task("b", "f", WRITE)), "neither depends"),
        ((Task("a", "f"), Task("a", "f")), "given twice"),
        ((Task("a", "f", (), ("c",)),), "unknown"),
        ((Task("a", "f", (Access("y", "read"),)),), "unknown"),
        ((Task("a", "f", (), ("b",)), Task("b", "f", (), ("a",))), "wait for each other"),
        ((Task("a", "f", (Access("x", "read", 2),)),), "version"),
        ((Task("a", "f", (Access("x", "peek"),)),), "mode"),
    ],
)
def test_bad_bundles_are_refused(tasks: tuple[Task, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Bundle((X,), tasks)


def test_bundles_from_json() -> None:
    text = {
        "schema": "tiga.executable-bundle.v1",
        "resources": [{"name": "x", "tier": "host", "capacity_bytes": 4}],
        "tasks": [{"name": "a", "symbol": "f", "accesses": [{"resource": "x", "mode": "write"}]}],
    }
    assert Bundle.parse(json.dumps(text)) == Bundle((X,), (Task("a", "f", WRITE),))
    for bad in ("{", "[]", "{}", json.dumps(text | {"schema": "v0"}), json.dumps(text | {"z": 1})):
        with pytest.raises(InvalidValue, match="bundle"):
            Bundle.parse(bad)


def test_accounts_add_up_from_many_threads() -> None:
    account = Account("host", 1000)

    def work() -> None:
        for _ in range(200):
            account.release(account.charge(3, "piece"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.live == 0
    assert 3 <= account.peak <= 12
