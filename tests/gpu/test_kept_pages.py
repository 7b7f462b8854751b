"""What calls over a graph in a file on a GPU leave for the next: pages, and the memory for them."""

import gc
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import tiga as tg  # noqa: E402
from tests.gpu import harness  # noqa: E402
from tests.gpu.paged_harness import fields, same_bits, saved, with_gradients, within  # noqa: E402
from tests.gpu.test_pages import Difference  # noqa: E402
from tiga.backends.triton.paged.kept import TIERS, StepPages  # noqa: E402
from tiga.backends.triton.paged.link import PairedArena  # noqa: E402
from tiga.errors import InvalidFile  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
    ),
    pytest.mark.usefixtures("where"),
]

KERNEL = Difference()
"""One for all tests: its kernels are compiled once."""


@pytest.fixture
def graphs(tmp_path: Path) -> tuple[Any, Any]:
    """A graph in memory and in a file, of which nothing is kept yet."""
    return saved(tmp_path, "sparse")


def expected(graphs: tuple[Any, Any], where: Any, scale: float = 1.0) -> list[Any]:
    x, w = fields(graphs[1], where, torch.float32, in_file=False)
    x = (x.detach() * scale).requires_grad_()
    return with_gradients(KERNEL, graphs[0], [x, w])


def from_file(graphs: tuple[Any, Any], where: Any) -> list[Any]:
    return with_gradients(KERNEL, graphs[1], fields(graphs[1], where, torch.float32, in_file=True))


def read_by(graph: Any, run: Any) -> tuple[int, Any]:
    """The bytes that a call reads, and what it gives."""
    before = graph.traffic.read
    found = run()
    return graph.traffic.read - before, found


@pytest.mark.parametrize("tier", TIERS)
def test_pages_are_read_once(
    tier: str, graphs: tuple[Any, Any], where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever they are kept; the first call plans anew when arrays are in memory whole."""
    monkeypatch.setattr("tiga.backends.triton.paged.kept.TIERS", (tier,))
    wanted, opened = expected(graphs, where), graphs[1]
    budgets = {"device": "64KiB", "host-pinned": "64KiB", "host": "1MiB"}
    with tg.execution(memory=budgets) as scope:
        reads = []
        for _ in range(4):
            read, found = read_by(opened, lambda: from_file(graphs, where))
            assert same_bits(found, wanted)
            reads.append(read)
        report = scope.memory_report()
    assert reads[0] > 0
    assert reads[-1] == 0
    assert within(report)
    assert report["idle_bytes"][tier] > 0
    assert not any(scope.memory_report()["idle_bytes"].values())


def test_fields_in_memory_are_read_anew(graphs: tuple[Any, Any], where: Any) -> None:
    x, w = fields(graphs[1], where, torch.float32, in_file=True)
    with tg.execution(memory={"device": "64KiB", "host-pinned": "64KiB"}):
        for scale in (1.0, 3.0, 3.0, 0.5):
            scaled = (x.detach().cpu() * scale).requires_grad_()
            found = with_gradients(KERNEL, graphs[1], [scaled, w])
            assert same_bits(found, expected(graphs, where, scale))


def test_what_is_kept_gives_way(graphs: tuple[Any, Any], where: Any) -> None:
    wanted = expected(graphs, where)
    with tg.execution(memory={"device": "64KiB", "host-pinned": "64KiB"}) as scope:
        from_file(graphs, where)
        assert scope.memory_report()["idle_bytes"]["device"] > 0
        account = scope._scope.accounts["device"]
        left = account.budget - account.live
        ticket = account.charge(left, "all that is left")
        assert scope.memory_report()["idle_bytes"]["device"] == 0
        account.release(ticket)
        assert same_bits(from_file(graphs, where), wanted)
        assert within(scope.memory_report())


def test_a_full_device_keeps_nothing(
    graphs: tuple[Any, Any], where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: StepPages, nbytes: int) -> Any:
        raise MemoryError("no memory is left")

    monkeypatch.setattr(StepPages, "block", full)
    wanted = expected(graphs, where)
    with tg.execution(memory={"device": "1MiB", "host-pinned": "1MiB"}) as scope:
        for _ in range(2):
            assert same_bits(from_file(graphs, where), wanted)
        assert within(scope.memory_report())


def test_an_error_in_a_later_page(graphs: tuple[Any, Any], where: Any, tmp_path: Path) -> None:
    """Pages before it are kept, and nothing stays charged."""
    opened = graphs[1]
    data, index = bytearray(opened.path.read_bytes()), opened.walks["dst"].index
    last = index.offset + (opened.num_edges - 1) * index.row_bytes
    data[last : last + index.row_bytes] = (10**6).to_bytes(index.row_bytes, "little")
    (tmp_path / "damaged").write_bytes(data)
    damaged = tg.Graph.open(tmp_path / "damaged", device=str(where))
    given = fields(damaged, where, torch.float32, in_file=True)
    budgets = {"device": "64KiB", "host-pinned": "64KiB"}
    with tg.execution(memory=budgets, page_rows=16) as scope:
        for _ in range(2):
            with pytest.raises(InvalidFile, match="out of the range"):
                with_gradients(KERNEL, damaged, given)
            assert scope.memory_report()["live_bytes"]["host-pinned"] == 0
        assert within(scope.memory_report())
        assert scope.memory_report()["idle_bytes"]["device"] > 0
        wanted = expected(graphs, where)
        for _ in range(2):
            assert same_bits(from_file(graphs, where), wanted)


def test_another_scope_begins_anew(graphs: tuple[Any, Any], where: Any) -> None:
    wanted, budgets = expected(graphs, where), {"device": "1MiB", "host-pinned": "1MiB"}
    with tg.execution(memory=budgets) as outer:
        from_file(graphs, where)
        assert outer.memory_report()["idle_bytes"]["device"] > 0
        with tg.execution(memory=budgets):
            assert same_bits(from_file(graphs, where), wanted)
            assert not any(outer.memory_report()["idle_bytes"].values())
        assert same_bits(from_file(graphs, where), wanted)


@pytest.mark.parametrize("budget", ["20KiB", "64KiB"])
def test_memory_of_pages_serves_all_steps(
    budget: str, graphs: tuple[Any, Any], where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where steps have less room for pages than others; in the end none is made."""
    made, wanted = [], expected(graphs, where)
    make = PairedArena.__init__

    def counted(self: PairedArena, *given: Any, **named: Any) -> None:
        made.append(named)
        make(self, *given, **named)

    monkeypatch.setattr(PairedArena, "__init__", counted)
    with tg.execution(memory={"device": budget, "host-pinned": "256KiB"}) as scope:
        for _ in range(3):
            assert same_bits(from_file(graphs, where), wanted)
        before = len(made)
        assert same_bits(from_file(graphs, where), wanted)
        assert within(scope.memory_report())
    assert before > 0
    assert len(made) == before


def test_a_graph_that_is_gone_keeps_nothing(graphs: tuple[Any, Any], where: Any) -> None:
    opened = tg.Graph.open(graphs[1].path, device=str(where))
    with tg.execution(memory={"device": "1MiB", "host-pinned": "1MiB"}) as scope:
        from_file((graphs[0], opened), where)
        assert scope.memory_report()["idle_bytes"]["device"] > 0
        del opened
        gc.collect()
        assert not any(scope.memory_report()["idle_bytes"].values())


def test_what_is_told_of_kept_pages(graphs: tuple[Any, Any], where: Any) -> None:
    with tg.execution(memory={"device": "1MiB", "host-pinned": "1MiB"}):
        for _ in range(3):
            with torch.no_grad():
                x, w = fields(graphs[1], where, torch.float32, in_file=True)
                KERNEL(graph=graphs[1], ndata={"x": x}, edge={"w": w})
    assert "were kept" in KERNEL.explain()
    assert "reads 0 B, writes 0 B" in KERNEL.explain()
