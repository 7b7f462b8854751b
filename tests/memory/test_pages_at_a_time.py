"""How many pages are in memory at a time: as many as may be, unless they read much more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tiga as tg  # noqa: E402
from tests.memory.test_paged import EDGES, NODES, WIDTH, WeightedSum  # noqa: E402
from tiga.paging import span  # noqa: E402
from tiga.paging.plan import WORTH, Planner, plan_walk  # noqa: E402


@pytest.fixture
def planners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Planner]:
    """What cuts a walk whose sources are few but anywhere, for budgets that hold more and more, as
    if pages cost nothing but their bytes."""
    monkeypatch.setattr(span, "PAGE_COST", 0)
    rng = np.random.default_rng(5)
    dst, src = rng.integers(0, NODES, EDGES), rng.integers(0, NODES // 10, EDGES)
    x, w = rng.random((NODES, WIDTH), np.float32), rng.random(EDGES, np.float32)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    paged = tg.Graph.open(graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    given: list[Any] = []

    def noted(*walk: Any) -> Any:
        given.append(walk)
        return plan_walk(*walk)

    monkeypatch.setattr("tiga.backends.llvm.paged.steps.plan_walk", noted)
    WeightedSum().explain(graph=paged, src=paged.fields["src"], dst=paged.fields["src"],
                          edge=paged.fields["edge"])  # fmt: skip
    ((stage, limits, division),) = given
    budgets = (2**10 * kib for kib in range(60, 500, 20))
    few = replace(limits, target=2**13, longest=0, threads=1, depth=4, readers=4)
    return [Planner(stage, replace(few, nbytes=nbytes), division) for nbytes in budgets]


def test_one_page_at_a_time_is_chosen_where_two_would_move_much_more(planners: Any) -> None:
    chosen = set()
    for planner in planners:
        found, whole = planner.plan(), planner.limits.nbytes
        chosen.add(found.arenas)
        alone = planner._try(1, whole, whole)
        two = planner._try(2, whole // 2, whole // 2)
        if len(alone.pages) == 1:
            continue
        if found.arenas == 1:
            assert two is None or WORTH * alone.cost < two.cost
        else:
            assert found.cost <= WORTH * alone.cost
        assert found.peak <= whole
    assert {1, 2} < chosen
