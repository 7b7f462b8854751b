"""Budgets on tensors: what is charged, refused, spilled and brought back."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tiga as tg
from tiga.errors import InvalidState, InvalidValue
from tiga.runtime.pool import POOL, is_pooled
from tiga.runtime.tiers import memory_left

KIB = 1024


def live(run: tg.execution, tier: str = "host") -> int:
    return run.memory_report()["live_bytes"][tier]


def test_memory_is_charged_once_while_anything_views_it() -> None:
    with tg.execution(memory={"ram": "4KiB"}) as run:
        x = tg.zeros((8, 8))
        assert live(run) == 256
        view = x.T[2:4]
        view.realize()
        assert live(run) == 256
        del x
        assert live(run) == 256
        del view
        assert live(run) == 0
        assert run.memory_report()["peak_bytes"]["host"] == 256


def test_refused_before_it_is_allocated() -> None:
    with tg.execution(memory={"host": "1KiB"}) as run:
        kept = tg.ones(200)
        with pytest.raises(MemoryError) as caught:
            tg.zeros(100_000_000_000)
        for part in ("'host'", "400000000000 bytes", "800 of 1024", "(200)|[200]|200xf32"):
            assert any(p in str(caught.value) for p in part.split("|"))
        y = kept + 1.0
        with pytest.raises(MemoryError, match="computing"):
            y.realize()
        assert live(run) == 800
        assert (kept[:50] * 2.0).sum().item() == 100.0


def test_values_outlive_the_scope_and_stay_charged_to_it() -> None:
    with tg.execution(memory={"host": "1KiB"}) as run:
        x = tg.ones(10)
    assert live(run) == 40
    y = tg.ones(10_000)
    assert (x.sum() + y.sum()).item() == 10_010
    del x
    assert live(run) == 0


def test_nested_scopes_charge_the_innermost() -> None:
    with tg.execution(memory={"host": 1000}) as outer:
        x = tg.ones(100)
        with tg.execution(memory={"host": 2000}) as inner:
            y = (x + 1.0).realize()
            assert (live(outer), live(inner)) == (400, 400)
        assert y.sum().item() == 200
        with pytest.raises(InvalidState, match="entered already"), outer:
            pass


def test_shared_memory_is_not_ours_to_charge() -> None:
    mine = np.zeros(1000, np.float32)
    with tg.execution(memory={"host": 100}) as run:
        x = tg.from_numpy(mine)
        assert live(run) == 0
        with pytest.raises(InvalidState, match="stay charged"):
            x.spill()


def test_spill_and_restore_with_views_in_place_writes_and_history(tmp_path: Path) -> None:
    with tg.execution(memory={"host": "1KiB", "nvme": "8KiB"}, spill_dir=tmp_path) as run:
        x = tg.tensor([[4.0 * i + j for j in range(4)] for i in range(3)])
        row, strided = x[1], x.T[::2]
        strided.realize()
        row.spill()
        assert (live(run), live(run, "nvme")) == (0, 48)
        assert [t.residency["resident"] for t in (x, row, strided)] == [False] * 3
        assert strided.strides == (2, 4)
        x.add_(1.0)
        assert row.tolist() == [5.0, 6.0, 7.0, 8.0]
        assert strided.tolist() == [[1.0, 5.0, 9.0], [3.0, 7.0, 11.0]]
        assert (live(run), live(run, "nvme")) == (48, 0)
        assert x.version == 1
        assert list(tmp_path.iterdir()) == []


def test_expressions_built_before_the_spill_see_the_value() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3.0
    x.spill()
    z = y + x
    assert z.tolist() == [4.0, 8.0]
    (grad,) = tg.autograd.grad((x * x).sum(), [x])
    x.spill()
    assert grad.tolist() == [2.0, 4.0]


def test_spilling_twice_or_what_is_held_elsewhere_is_refused() -> None:
    x = tg.ones(4).realize()
    array = x.numpy()
    with pytest.raises(InvalidState, match="16 bytes stay charged"):
        x.spill()
    assert x.residency["resident"]
    array[0] = 7.0
    assert x.tolist() == [7.0, 1.0, 1.0, 1.0]
    del array
    x.spill()
    with pytest.raises(RuntimeError, match="temporary-spill"):
        x.spill()


def test_values_spilled_in_a_folder_that_is_gone_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    with tg.execution(spill_dir=folder):
        x = tg.ones(5).spill()
    folder.rmdir()
    assert x.tolist() == [1.0] * 5


def test_collected_tensors_free_the_disk() -> None:
    with tg.execution() as run:
        x = tg.ones(5).spill()
        assert live(run, "nvme") == 20
        del x
        gc.collect()
        assert live(run, "nvme") == 0


def test_lru_spills_the_idle_and_keeps_operands() -> None:
    with tg.execution(memory={"host": 3 * 4 * KIB}, eviction="lru") as run:
        kept = [tg.full(KIB, float(i)) for i in range(3)]
        fourth = tg.full(KIB, 3.0)
        assert [t.residency["resident"] for t in kept] == [False, True, True]
        assert [t.tolist()[0] for t in (*kept, fourth)] == [0.0, 1.0, 2.0, 3.0]
        report = run.memory_report()
        assert report["evictions"] >= 2
        assert report["peak_bytes"]["host"] <= 3 * 4 * KIB
        with pytest.raises(MemoryError):
            (kept[0] + kept[1] + kept[2] + fourth).tolist()
        assert (kept[0] + kept[1]).sum().item() == KIB


def test_lru_leaves_in_memory_what_the_disk_does_not_hold() -> None:
    budgets = {"host": 8 * KIB, "nvme": KIB}
    with tg.execution(memory=budgets, eviction="lru"):
        kept = [tg.ones(KIB), tg.ones(KIB)]
        with pytest.raises(MemoryError, match=r"'host'.* moved to tier 'nvme': 0 of its 1024 "):
            tg.ones(KIB)
        assert [t.residency["resident"] for t in kept] == [True, True]


@pytest.mark.parametrize(
    "options",
    [{"device": "cuda"}, {"memory": {"host": "1GB"}}, {"memory": {"tape": 1}}, {"page_rows": 0},
     {"prefetch_depth": -1}, {"eviction": "never"}, {"memory": {"ram": 1, "host": 1}}],
)  # fmt: skip
def test_bad_options_are_refused(options: dict) -> None:
    with pytest.raises(InvalidValue):
        tg.execution(**options)


def test_a_missing_spill_folder_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="existing directory"), \
            tg.execution(spill_dir=tmp_path / "none"):  # fmt: skip
        pass


def test_the_timeline_can_be_plotted(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with tg.execution() as run:
        tg.ones(10).spill()
    assert max(host for _, host, _ in run.timeline()) == 40
    run.plot(tmp_path / "live.png")
    assert (tmp_path / "live.png").stat().st_size > 1000


class Budget(RuleBasedStateMachine):
    """Tensors under a budget against a model: which blocks there are, where, and their values."""

    LIMIT, DISK = 4000, 6000

    @initialize(lru=st.booleans())
    def start(self, lru: bool) -> None:
        eviction = "lru" if lru else "error"
        self.lru = lru
        memory = {"host": self.LIMIT, "nvme": self.DISK}
        self.run_ = tg.execution(memory=memory, eviction=eviction)
        self.run_.__enter__()
        self.blocks: list[dict] = []
        self.count = 0

    def teardown(self) -> None:
        self.blocks.clear()
        self.run_.__exit__(None, None, None)

    def resident(self, block: dict) -> bool:
        return block["tensors"][0].residency["resident"]

    def host(self) -> int:
        return sum(b["size"] * 8 for b in self.blocks if self.resident(b))

    def disk(self) -> int:
        return sum(b["size"] * 8 for b in self.blocks if not self.resident(b))

    @rule(size=st.integers(0, 250))
    def allocate(self, size: int) -> None:
        before, self.count = self.host(), self.count + 1
        try:
            tensor = tg.full(size, float(self.count), dtype=tg.float64)
        except MemoryError:
            assert before + size * 8 > self.LIMIT
            return
        if not self.lru:
            assert before + size * 8 <= self.LIMIT
        value = np.full(size, float(self.count))
        self.blocks.append({"size": size, "tensors": [tensor], "value": value})

    @precondition(lambda self: self.blocks)
    @rule(i=st.integers(0, 100))
    def view(self, i: int) -> None:
        block = self.blocks[i % len(self.blocks)]
        whole = block["tensors"][0]
        if self.resident(block):
            block["tensors"].append(whole[:])

    @precondition(lambda self: self.blocks)
    @rule(i=st.integers(0, 100))
    def spill(self, i: int) -> None:
        block = self.blocks[i % len(self.blocks)]
        was, disk = self.resident(block), self.disk()
        try:
            block["tensors"][i % len(block["tensors"])].spill()
        except MemoryError:
            assert disk + block["size"] * 8 > self.DISK
        except InvalidState:
            assert not was
        else:
            assert was
            assert not self.resident(block)

    @precondition(lambda self: self.blocks)
    @rule(i=st.integers(0, 100))
    def use(self, i: int) -> None:
        block = self.blocks[i % len(self.blocks)]
        fits = self.resident(block) or self.host() + block["size"] * 8 <= self.LIMIT
        try:
            for tensor in block["tensors"]:
                np.testing.assert_array_equal(np.array(tensor.tolist()), block["value"])
        except MemoryError:
            assert not fits
        else:
            assert self.lru or fits

    @precondition(lambda self: self.blocks)
    @rule(i=st.integers(0, 100))
    def write(self, i: int) -> None:
        block = self.blocks[i % len(self.blocks)]
        if self.resident(block):
            block["tensors"][-1].fill_(-1.0)
            block["value"][:] = -1.0

    @precondition(lambda self: self.blocks)
    @rule(i=st.integers(0, 100))
    def free(self, i: int) -> None:
        block = self.blocks[i % len(self.blocks)]
        self.blocks = [b for b in self.blocks if b is not block]
        block.clear()

    @invariant()
    def counted(self) -> None:
        if not hasattr(self, "run_"):
            return
        report = self.run_.memory_report()
        assert report["live_bytes"]["host"] == self.host() <= self.LIMIT
        assert report["live_bytes"]["nvme"] == self.disk() <= self.DISK


TestBudget = Budget.TestCase
TestBudget.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_view_is_spilled_after_its_base_is_gone() -> None:
    """Its expression still holds the base's value."""
    with tg.execution(memory={"host": "1MiB"}) as run:
        base = tg.arange(1000).realize()
        view = base[10:20]
        other = view.reshape(2, 5)
        del base
        assert view.spill().residency["backing"] == "temporary-spill"
        assert run.memory_report()["live_bytes"]["host"] == 0
        assert other.tolist() == [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
        assert view.tolist() == list(range(10, 20))


def test_memory_that_waits_for_use_is_no_reason_to_refuse() -> None:
    with tg.execution(memory={"host": "40MiB"}) as run:
        for count in (1, 2, 4, 6, 8, 3, 5, 8):
            x = tg.ones(count * 2**20)
            y = (x * 2.0).realize() if count < 5 else x.realize()
            assert y.numpy()[-1] == (2.0 if count < 5 else 1.0)
            del x, y
            waiting = sum(block.nbytes for block in POOL._blocks if block.free)
            assert waiting <= 40 * 2**20
        assert run.memory_report()["peak_bytes"]["host"] <= 40 * 2**20
    with tg.execution(memory={"host": "40MiB"}):
        kept = (tg.ones(2**20) + 1.0).realize()
        del kept


def test_a_pooled_tensor_moves_out_and_back() -> None:
    with tg.execution(memory={"host": "64MiB"}):
        x = (tg.arange(2**20, dtype=tg.float32) * 2.0).realize()
        assert is_pooled(x.numpy())
        view = x[10:20]
        view.realize()
        x.spill()
        assert not x.residency["resident"]
        assert view.tolist() == [2.0 * i for i in range(10, 20)]
        assert x.numpy()[-1] == 2.0 * (2**20 - 1)


def test_what_the_machine_has_left_is_less_than_it_has() -> None:
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory_left() < has


def test_files_in_the_page_cache_take_no_memory_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group of processes with a bound, which they soon fill by reading."""
    monkeypatch.setattr("tiga.runtime.tiers._GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\nactive_file 1200\ninactive_file 2500\n")
    assert memory_left() == 3700
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_left() > 5000
