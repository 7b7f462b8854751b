"""Gradients that decide what to keep of the forward expression and what to compute again."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tiga import knobs
from tiga.frontends.tensor.arrays import to_host
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import Cell
from tiga.frontends.tensor.program import BoundProgram, program_of
from tiga.frontends.tensor.running import Ran, run_program
from tiga.frontends.tensor.storage import give_array
from tiga.ops.leaf import Input
from tiga.ops.tensor_markers import Checkpoint, CheckpointCandidate, Marker, Spill
from tiga.passes.tensor_checkpoints import (
    CheckpointPlan,
    apply_plan,
    candidates_of,
    plan_checkpoints,
    work,
)
from tiga.passes.tensor_dialect import TensorProgram
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node, substitute, topological
from tiga.trace.program import Program

_CANDIDATE = CheckpointCandidate()


def marked(output: Node, gradients: Sequence[Node]) -> list[Node]:
    """The gradients, with every forward value that they read marked as a candidate."""
    forward = set(topological([output]))
    done: dict[Node, Node] = {}
    for node in topological(gradients):
        if node in forward:
            done[node] = node
            continue
        inputs = tuple(
            _CANDIDATE(child) if child in forward and child.inputs else done[child]
            for child in node.inputs
        )
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        done[node] = node if same else node.op(*inputs, where=node.where)
    return [done[node] for node in gradients]


def decide(program: Program, policy: str) -> CheckpointPlan:
    """The plan for the candidates of a program: all of them, none, or what the budget allows."""
    wanted = candidates_of(program)
    if policy == "save":
        return CheckpointPlan(wanted, wanted, (), 0.0)
    if policy == "recompute":
        return CheckpointPlan(wanted, (), (), sum(map(work, topological(wanted))))
    settings = knobs.current()
    budget = -1 if settings.checkpoint_budget_bytes is None else settings.checkpoint_budget_bytes
    return plan_checkpoints(program, budget, settings.checkpoint_spill_budget_bytes)


@dataclass
class GradientPlan:
    """The gradients of one output: materialised together, forward values kept as planned."""

    output: Tensor
    gradients: list[Tensor]
    policy: str
    report: dict[str, Any] = field(default_factory=dict)

    def settle(self) -> None:
        """Give the gradients (and the output) their values."""
        start = perf_counter()
        nodes = [self.output._node, *(g._node for g in self.gradients)]
        bound = program_of(nodes, cut=False)
        output, *gradients = bound.program.outputs
        program = TensorProgram(bound.program.inputs, tuple(marked(output, gradients)))
        plan = decide(program, self.policy)
        planned = apply_plan(program, plan)
        decided = perf_counter()
        saved = self._forward(bound, output, planned)
        forward_done = perf_counter()
        backward = self._backward(planned, bound.arrays, saved)
        self.report.update(self._report(plan, program))
        self.report["planning_ms"] = (decided - start) * 1e3
        execution = {
            "backend": backward.backend,
            "saved_bytes": plan.saved_bytes,
            "checkpoint_plan": self.report,
            "saved_ms": (forward_done - decided) * 1e3,
            "compile_ms": backward.compile_ms,
            "materialize_ms": (perf_counter() - start) * 1e3,
        }
        for tensor, array in zip(self.gradients, backward.outputs, strict=True):
            _give(tensor, _own(array), execution)

    def _forward(
        self, bound: BoundProgram, output: Node, planned: TensorProgram
    ) -> dict[Node, "np.ndarray | SpilledValue"]:
        """The kept values by the node that marks them, and the output's value."""
        marks = [n for n in planned.order if isinstance(n.op, Checkpoint | Spill)]
        below = [_plain(n.inputs[0]) for n in marks]
        forward = run_program(Program(bound.program.inputs, (output, *below)), bound.arrays)
        value, *kept = forward.outputs
        if self.output._array is None:
            told = {"backend": forward.backend, "compile_ms": forward.compile_ms}
            _give(self.output, _own(value), told)
        self.report["saved_compile_ms"] = forward.compile_ms
        start = perf_counter()
        saved = {
            mark: _spilled(array) if isinstance(mark.op, Spill) else array
            for mark, array in zip(marks, kept, strict=True)
        }
        spilled = [array for array in saved.values() if isinstance(array, SpilledValue)]
        self.report["spilled_bytes"] = sum(one.path.stat().st_size for one in spilled)
        self.report["spill_ms"] = (perf_counter() - start) * 1e3
        return saved

    def _backward(
        self, planned: TensorProgram, arrays: list[np.ndarray],
        saved: dict[Node, "np.ndarray | SpilledValue"],
    ) -> Ran:  # fmt: skip
        """The gradients, made of kept values, which are kept no longer."""
        leaves: dict[Node, Node] = {
            mark: Input(f"saved{i}", mark.type)() for i, mark in enumerate(saved)
        }
        outputs = substitute(planned.outputs, leaves)
        program = Program((*planned.inputs, *leaves.values()), tuple(outputs))
        try:
            values = [v.read() if isinstance(v, SpilledValue) else v for v in saved.values()]
            return run_program(program, [*arrays, *values])
        finally:
            for value in saved.values():
                if isinstance(value, SpilledValue):
                    value.path.unlink()

    @staticmethod
    def _report(plan: CheckpointPlan, program: TensorProgram) -> dict[str, Any]:
        kept, spilled = set(plan.saved), set(plan.spilled)
        decisions = {
            f"{i}:{n.op.name}": "save" if n in kept else "spill" if n in spilled else "recompute"
            for i, n in enumerate(plan.candidates)
        }
        return {
            "candidate_count": len(plan.candidates),
            "decisions": decisions,
            "memory_budget_bytes": knobs.current().checkpoint_budget_bytes,
            "spill_budget_bytes": knobs.current().checkpoint_spill_budget_bytes,
            "planned_saved_bytes": plan.saved_bytes,
            "planned_spilled_bytes": plan.spilled_bytes,
            "recompute_ms": plan.recompute * 1e-6,
        }


def _plain(node: Node) -> Node:
    """A forward value without the marks below it."""
    marks = [n for n in topological([node]) if isinstance(n.op, Marker)]
    replacements: dict[Node, Node] = {}
    for mark in marks:
        (replacements[mark],) = substitute([mark.inputs[0]], dict(replacements))
    return substitute([node], replacements)[0]


def _give(tensor: Tensor, array: np.ndarray, execution: dict[str, Any]) -> None:
    give_array(tensor, array)
    tensor._execution = execution
    tensor._node.cell = Cell(array)
    tensor._source = None


def _own(array: Any) -> Any:
    """A value in row-major memory of its own, which a GPU's values have."""
    return array if isinstance(array, DeviceArray) else np.array(array, order="C")


@dataclass(frozen=True)
class SpilledValue:
    """A value that waits in a file, of its own bytes."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """The value again."""
        flat: np.ndarray = np.fromfile(self.path, np.uint8)
        return flat.view(self.dtype).reshape(self.shape)


def _spilled(array: Any) -> SpilledValue:
    """The value in a file; where it is used again it goes back to its GPU."""
    array = to_host(array)
    handle, name = tempfile.mkstemp(prefix="tiga-checkpoint-")
    with os.fdopen(handle, "wb") as file:
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(file)
    return SpilledValue(Path(name), array.dtype, array.shape)
