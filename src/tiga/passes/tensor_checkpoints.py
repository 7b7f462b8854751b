"""Decide which forward values a backward program saves, and which it computes again.

A plan is a cut between the forward inputs and what the backward part reads: every value on it is
saved, everything after it computed again. For a price per byte, a minimum cut is the best plan;
over a range of prices these are the plans worth choosing from, and the one with the least work
that fits the budget is taken. More budget never saves less.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tiga.ops.tensor_markers import Checkpoint, CheckpointCandidate, Spill
from tiga.passes.base import Pass
from tiga.passes.tensor_dialect import TensorProgram
from tiga.trace.mincut import INFINITE, Network
from tiga.trace.node import Node, reached, rewrite, topological
from tiga.trace.program import Program

UNLIMITED = -1
PRICES = (0.0, *(2.0**k for k in range(-16, 13)))
"""Nanoseconds of work that one saved byte has to spare."""


def work(node: Node) -> float:
    """About how many nanoseconds computing a value takes, its operands given."""
    op, size = node.op, max(node.type.size, 1)
    if not node.inputs:
        return 0.0
    if op.renames or op.identity:
        return 0.01 * size
    inner = op.inner_extent(*(child.type for child in node.inputs))
    if inner:
        return 0.05 * size * inner
    if op.pointwise:
        return (0.2 + 0.05 * op.cost) * size
    return 0.5 * max(size, *(child.type.size for child in node.inputs))


MOST_KEPT = 64
"""Values of a cut up to which smaller ones are derived from it one by one."""


@dataclass(frozen=True)
class CheckpointPlan:
    """What is kept: in memory (`saved`), outside of it (`spilled`); the rest is computed again.

    `recompute` is the work of that in nanoseconds, as estimated.
    """

    candidates: tuple[Node, ...]
    saved: tuple[Node, ...]
    spilled: tuple[Node, ...]
    recompute: float

    @property
    def saved_bytes(self) -> int:
        return sum(node.type.row_bytes for node in self.saved)

    @property
    def spilled_bytes(self) -> int:
        return sum(node.type.row_bytes for node in self.spilled)


@dataclass(frozen=True)
class _Cut:
    kept: tuple[Node, ...]
    recompute: float

    @property
    def nbytes(self) -> int:
        return sum(node.type.row_bytes for node in self.kept)


def candidates_of(program: Program) -> tuple[Node, ...]:
    """The forward values that are marked as candidates, in order."""
    return tuple(dict.fromkeys(n.inputs[0] for n in program.order if _is_candidate(n)))


def _is_candidate(node: Node) -> bool:
    return isinstance(node.op, CheckpointCandidate)


def _best(order: Sequence[Node], wanted: Sequence[Node], price: float) -> _Cut:
    """The cheapest cut when a saved byte costs `price`."""
    network = Network()
    reads = {node: network.node() for node in order}
    makes = {node: network.node() for node in order}
    for node in wanted:
        network.edge(0, reads[node], INFINITE)
    for node in order:
        if not node.inputs:
            continue
        network.edge(reads[node], makes[node], price * node.type.row_bytes + 1e-9)
        network.edge(makes[node], 1, work(node))
        for child in node.inputs:
            network.edge(makes[node], reads[child], INFINITE)
    _, side = network.cut()
    kept = tuple(n for n in order if n.inputs and reads[n] in side and makes[n] not in side)
    again = sum(work(n) for n in order if n.inputs and makes[n] in side)
    return _Cut(kept, again)


def _again(kept: set[Node], wanted: Sequence[Node]) -> float:
    """The work of computing `wanted` from inputs and kept values."""
    return sum(work(n) for n in reached(wanted, kept.__contains__) if n not in kept)


def _all_cuts(order: Sequence[Node], wanted: Sequence[Node]) -> dict[tuple[Node, ...], _Cut]:
    """The best cuts over all prices, and what they become as one value after another is given up,
    the one with the least work per byte first: the choice does not depend on a budget."""
    cuts = {c.kept: c for c in (_best(order, wanted, price) for price in PRICES)}
    for cut in list(cuts.values()):
        kept = list(cut.kept)
        while kept and len(kept) <= MOST_KEPT:
            spare = {n: _again(set(kept) - {n}, wanted) / max(n.type.row_bytes, 1) for n in kept}
            kept.remove(min(kept, key=spare.__getitem__))
            smaller = _Cut(tuple(kept), _again(set(kept), wanted))
            cuts.setdefault(smaller.kept, smaller)
    cuts.setdefault((), _Cut((), _again(set(), wanted)))
    return cuts


def plan_checkpoints(
    program: Program, budget: int = UNLIMITED, spill_budget: int = 0
) -> CheckpointPlan:
    """The plan for the candidates of a program.

    Args:
        budget: bytes that may be kept in memory; -1: any number.
        spill_budget: bytes that may be kept outside of memory besides.
    """
    wanted = candidates_of(program)
    order = topological(wanted)
    cuts = _all_cuts(order, wanted)
    fitting = [cut for cut in cuts.values() if _fits(cut, budget, spill_budget)]
    chosen = min(fitting, key=lambda cut: (cut.recompute, cut.nbytes))
    saved, spilled = _split(chosen.kept, budget)
    return CheckpointPlan(wanted, tuple(saved), tuple(spilled), chosen.recompute)


def _fits(cut: _Cut, budget: int, spill_budget: int) -> bool:
    if budget == UNLIMITED or cut.nbytes <= budget:
        return True
    _, spilled = _split(cut.kept, budget)
    return sum(node.type.row_bytes for node in spilled) <= spill_budget


def _split(kept: Sequence[Node], budget: int) -> tuple[list[Node], list[Node]]:
    """What stays in memory, the dearest work per byte first, and what does not fit."""
    if budget == UNLIMITED:
        return list(kept), []
    inside: list[Node] = []
    used = 0
    for node in sorted(kept, key=lambda n: work(n) / max(n.type.row_bytes, 1), reverse=True):
        if used + node.type.row_bytes <= budget:
            inside.append(node)
            used += node.type.row_bytes
    return [n for n in kept if n in inside], [n for n in kept if n not in inside]


def apply_plan(program: TensorProgram, chosen: CheckpointPlan) -> TensorProgram:
    """The program with its candidates decided: kept values are marked where the backward part
    reads them or what is computed from them, the rest stands for itself."""
    kept = {n: Checkpoint() for n in chosen.saved} | {n: Spill() for n in chosen.spilled}
    order = topological(chosen.candidates)
    done: dict[Node, Node] = {}
    for node in order:
        inputs = tuple(done[child] for child in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        made = node if same else node.op(*inputs, where=node.where)
        done[node] = kept[node](node) if node in kept else made

    def decide(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        return done[node.inputs[0]] if _is_candidate(node) else None

    return TensorProgram(program.inputs, tuple(rewrite(program.outputs, decide)))


@dataclass(frozen=True)
class PlanTensorCheckpoints(Pass, name="gf-plan-tensor-checkpoints", takes=TensorProgram):
    """Turn checkpoint candidates into checkpoints or recomputation, within `budget` bytes."""

    budget: int = UNLIMITED
    spill: int = 0

    def __call__(self, form: TensorProgram) -> TensorProgram:
        return apply_plan(form, plan_checkpoints(form, self.budget, self.spill))
