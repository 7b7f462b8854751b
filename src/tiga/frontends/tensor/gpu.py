"""Values through kernels on a GPU."""

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from tiga import knobs
from tiga.backends.triton.dense.executable import DenseExecutable, compile_dense
from tiga.errors import UnsupportedByBackend
from tiga.frontends.tensor.arrays import moved_to
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.gpu_arrays import on_gpu, room
from tiga.frontends.tensor.lazy import LARGE, LazyNode, leaf
from tiga.frontends.tensor.placement import device_named, places
from tiga.frontends.tensor.planned import Entry, Plans, Run
from tiga.frontends.tensor.recipe import Recipe, Structure, structure
from tiga.frontends.tensor.waiting import pending
from tiga.ops.tensor_transfer import ToDevice
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node

PLANS: Plans[DenseExecutable] = Plans()
"""Planned expressions by their structure."""


class Copy(NamedTuple):
    """A value that was copied from another device."""

    seconds: float

    def report(self) -> dict[str, Any]:
        """As `Tensor.execution` tells it."""
        return {"backend": "copy", "materialize_ms": self.seconds * 1e3, "saved_bytes": 0}


def run_on_gpu(
    roots: Sequence[Node], index: int, mode: str, relaxed: bool = True
) -> tuple[list[DeviceArray], Run]:
    """Values of `roots` on the GPU where their operands are, and how they were computed; without
    `relaxed` sums add element after element.

    Raises:
        UnsupportedByBackend: an op has no form there; or numpy is asked for by the settings.
    """
    if mode == "python":
        raise UnsupportedByBackend(
            "TIGA_TENSOR_BACKEND=python computes by numpy on the CPU, and the operands are on "
            f"cuda:{index}; use auto or native, or copy them: x.cpu()."
        )
    start = perf_counter()
    make = partial(compile_dense, relaxed=relaxed)
    found, entry, hit = PLANS.of(roots, (relaxed,), make)
    given = [on_gpu(array, index) for array in entry.operands(found.order)]
    arrays, how = _launched(entry, given, index, found, hit, start)
    return arrays, how._replace(relaxed=relaxed)


def run_known(roots: Sequence[Node]) -> tuple[list[DeviceArray], Run] | None:
    """Values of `roots` whose expression was planned before, if their operands are all on one GPU:
    the short way, which looks at nothing but their structure."""
    start = perf_counter()
    found = structure(roots)
    entry = PLANS.get((found.parts, True))  # relaxed
    if entry is None:
        return None
    given = entry.operands(found.order)
    if not given or any(array.__class__ is not DeviceArray for array in given):
        return None
    index = given[0].machine.index
    scattered = any(array.machine.index != index for array in given)
    if scattered or knobs.read("tensor_backend") == "python":
        return None
    return _launched(entry, given, index, found, True, start)


def _launched(
    entry: Entry[DenseExecutable], given: list[DeviceArray], index: int, found: Structure,
    hit: bool, start: float,
) -> tuple[list[DeviceArray], Run]:  # fmt: skip
    where, executable = room(index), entry.executable
    compiled = executable.is_compiled(where.machine)
    compile_ms = 0.0 if compiled else executable.compile(where.machine)
    launched = perf_counter()
    bodies = [found.order[i].op.compute_on_gpu for i in found.calls]
    arrays = executable.run(given, where, bodies)
    done = perf_counter()
    recipe = Recipe(entry.form, found.order, found.calls)
    return arrays, Run(recipe, executable, hit, True, compile_ms, done - launched, done - start)


def run_anywhere(
    order: Sequence[Node], roots: Sequence[Node], mode: str
) -> tuple[list[Any], Any] | None:
    """Values of `roots` if they are on a GPU, or need copies between devices (of one); else None.

    `order` has the nodes to compute, each after its inputs.
    """
    from tiga.frontends.tensor.evaluate import run

    found = places(order, roots)
    if any(isinstance(node.op, ToDevice) for node in order):
        start = perf_counter()
        (root,) = without_transfers(order, roots)
        if root.cell is None:
            return run((root,), mode)
        return [root.cell.array], Copy(perf_counter() - start)
    index = next((d.index for d in found if d is not None and d != CPU), None)
    return None if index is None else run_on_gpu(roots, index, mode)


def without_transfers(order: Sequence[Node], roots: Sequence[Node]) -> list[Node]:
    """The roots with every waiting copy between devices made."""
    made: dict[int, Node] = {}
    for node in order:
        inputs = tuple(made.get(id(child), child) for child in node.inputs)
        if isinstance(node.op, ToDevice):
            made[id(node)] = leaf(_value_on(node.op.device, inputs[0]), node.type)
        elif inputs != node.inputs:
            place = getattr(node, "place", None)
            made[id(node)] = LazyNode(node.op, inputs, node.type, place, 1, LARGE)
    return [made.get(id(root), root) for root in roots]


def _value_on(name: str, node: Node) -> Any:
    """A value on a device: copied there, or computed there if no operand says where, and a graph is
    walked for it (a constant cotangent of a call)."""
    from tiga.frontends.tensor.evaluate import value_of

    device = device_named(name)
    order = pending([node])
    walks = any(child.op.defers for child in order)
    if device != CPU and walks and places(order, [node]) == [None]:
        (array,), _ = run_on_gpu((node,), device.index, "auto")
        return array
    return moved_to(value_of(node), device)
