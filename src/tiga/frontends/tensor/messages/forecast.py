"""What a native call over a graph in a file will take, told before it runs and without its
features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tiga.backends.llvm.paged.forecast import planned_on_cpu
from tiga.errors import Unfusable
from tiga.frontends.message_passing import FieldSets, MessagePassing
from tiga.frontends.spaces import extents_of
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.messages.call import KernelCall
from tiga.frontends.tensor.messages.calls import calls_of
from tiga.frontends.tensor.messages.capture import CapturedProgram
from tiga.frontends.tensor.messages.graph_call import Launch, Walk
from tiga.frontends.tensor.messages.paged import device_of, is_repeated, note_writes, rows_of
from tiga.frontends.tensor.placement import device_of_node
from tiga.paging.planned import PlannedRows
from tiga.paging.predicted import Places, Planned, Prediction, plan_gradient
from tiga.runtime import parallel
from tiga.trace.node import Node
from tiga.types import GLOBAL, Type


def told(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> list[str]:
    """The lines that `explain` adds for a call that is not made."""
    what, predictions = foretold(kernel, graph, given, params)
    return [*what, *(line for prediction in predictions for line in prediction.told())]


def foretold(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> tuple[list[str], list[Prediction]]:
    """Capture the program of a call that is not made: why there is none, and what it would take
    where the graph is in a file."""
    run = KernelCall.of(kernel, graph, given, params)
    try:
        plan = run.plan()
        calls_of(kernel).note(plan.launch)
        return [], list(_predicted(run, plan)) if graph.paged else []
    except Unfusable as reason:
        return [f"a call would not be fused: {reason}"], []


def _predicted(run: KernelCall, plan: CapturedProgram) -> Iterator[Prediction]:
    note_writes(run.fields.values())
    walk = Walk.of(plan.launch, run.topology, run.topology, run.grad)
    return _of_walk(walk, run.inputs(plan), len(plan.program.outputs))


def _of_walk(walk: Walk, inputs: Sequence[Node], results: int) -> Iterator[Prediction]:
    """The forward run, and, where derivatives may be asked for, the gradient of each of the first
    `results` outputs.

    Raises:
        OutOfBudget: as the run would.
    """
    given = zip(inputs, walk.launch.program.inputs, strict=True)
    places = [_place(node, of.type, walk.graph) for node, of in given]
    forward = _planned(walk.launch, walk.graph, places, {})
    yield Prediction("forward, saving for gradients" if walk.trained else "forward", forward)
    floats = [i for i in range(results) if walk.launch.types[i].dtype.is_differentiable]
    for index in floats if walk.trained else ():
        what = "gradients" if len(floats) == 1 else f"gradients of output {index}"
        yield Prediction(what, _backward(walk, index, places, forward))


def _place(node: Node, of: Type, graph: Any) -> PlannedRows | None:
    """Where the value of an input lies, or will: those of nodes that are not computed yet are not
    computed for this."""
    if of.space == GLOBAL:
        return None
    cell = node.cell
    elsewhere = device_of_node(node) != device_of(graph)
    if cell is not None and isinstance(cell.array, np.ndarray):
        rows = PlannedRows.like(rows_of(cell.array, graph))
    else:
        rows = PlannedRows.of(node.type.shape[0], of.row_bytes, in_file=False)
    return replace(rows, address=0) if elsewhere or is_repeated(node) else rows


def _backward(walk: Walk, index: int, inputs: Places, forward: Planned) -> Planned:
    found, launch = walk.backward(index)
    return plan_gradient(
        lambda places, held: _planned(launch, walk.graph, places, held),
        found.arguments, launch.program.inputs, extents_of(launch.program, walk.graph), inputs,
        forward,
    )  # fmt: skip


def _planned(launch: Launch, graph: Any, inputs: Places, held: Mapping[str, int]) -> Planned:
    device, extents = device_of(graph), extents_of(launch.program, graph)
    with graph.reading():
        if device == CPU:
            executable, threads = launch.compiled.executable, parallel.thread_count()
            return planned_on_cpu(executable, graph, extents, inputs, held, threads)
        from tiga.backends.triton.paged.forecast import planned_on_gpu
        from tiga.frontends.tensor.messages.paged_gpu import NativeArrays

        by_pages, arrays = launch.on_gpus.by_pages, NativeArrays(device.index)
        return planned_on_gpu(by_pages, graph, extents, inputs, held, arrays)
