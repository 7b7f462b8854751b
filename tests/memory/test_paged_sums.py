"""Sums that walks over pages keep in memory whole: at the sources, and in large tables."""

from pathlib import Path
from typing import Any

import pytest

import tiga as tg
from tiga.runtime.tiers import parse_size

torch = pytest.importorskip("torch")

from tests.memory.test_paged import (  # noqa: E402
    WIDTH,
    Chain,
    attached,
    fields,
    results,
    same,
    stored,
)

__all__ = ["stored"]  # a fixture


@pytest.mark.parametrize("kind", ["random", "local", "gaps"])
@pytest.mark.parametrize("budget", ["1200KiB", "3MiB"])
def test_sums_scattered_to_the_other_ends(
    kind: str, budget: str, stored: Any, tmp_path: Path
) -> None:
    """Gradients of scans: four groups of partial sums, 766 KiB, stay in memory."""
    graph, paged = stored(kind)
    expected = results(Chain(), graph, *fields())
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        found = results(Chain(), paged, *attached(paged, *fields()))
    assert same(found, expected)
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)


@pytest.mark.parametrize(("kind", "budget"), [("local", "700KiB"), ("hubs", "4MiB")])
def test_scattered_sums_that_do_not_fit_and_long_rows_go_through_torch(
    kind: str, budget: str, stored: Any, tmp_path: Path
) -> None:
    """Blocks send messages through memory, so nothing is scattered; values agree up to rounding."""
    graph, paged = stored(kind)
    expected, layer = results(Chain(), graph, *fields()), Chain()
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        found = results(layer, paged, *attached(paged, *fields()))
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)
    assert "gradient of a scan" in layer.explain()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


class Embedded(tg.MessagePassing, torch.nn.Module):
    """A table of 72000 elements by an index of the edges, and a weight beside if it has one."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(9000, WIDTH))
        self.mix = torch.nn.Linear(WIDTH, WIDTH) if mixes else torch.nn.Identity()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        kind = (src.x[:, 0] * 8999).long()
        return self.mix(self.table[kind] * edge.w[:, None]) + src.x

    def node(self, dst: Any, aggregate: Any) -> Any:
        return torch.tanh(aggregate)


@pytest.mark.parametrize("kind", ["random", "local", "gaps"])
@pytest.mark.parametrize("budget", ["1400KiB", "4MiB"])
def test_gradients_of_large_tables(kind: str, budget: str, stored: Any, tmp_path: Path) -> None:
    """Four tables, 1.1 MiB, stay in memory; pages of a task add to one of them in order."""
    graph, paged = stored(kind)
    expected, layer = results(Embedded(False), graph, *fields()), Embedded(False)
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path) as run:
        found = results(layer, paged, *attached(paged, *fields()))
    assert same(found, expected)
    assert "not fused" not in layer.explain()
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)


@pytest.mark.parametrize(("kind", "mixes"), [("hubs", False), ("local", True)])
def test_large_tables_that_pages_do_not_add_up_go_through_torch(
    kind: str, mixes: bool, stored: Any
) -> None:
    """Where rows are long, or other sums over all edges are made with them."""
    graph, paged = stored(kind)
    expected, layer = results(Embedded(mixes), graph, *fields()), Embedded(mixes)
    found = results(layer, paged, *attached(paged, *fields()))
    assert "through torch" in layer.explain()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
