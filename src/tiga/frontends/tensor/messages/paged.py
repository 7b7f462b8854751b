"""Calls of native tensors on graphs in files: made at once, page by page, where the graph runs.

An operand may lie in the file, in memory of the host or on the graph's device, and so may a result:
no program of one device holds such a call.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.errors import InvalidValue, UnsupportedByBackend
from tiga.frontends.spaces import extents_of
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device, check_device
from tiga.frontends.tensor.lazy import LARGE, Cell, LazyNode, here, leaf, user_place
from tiga.frontends.tensor.messages.graph_call import GraphCall, Launch, Walk
from tiga.frontends.tensor.storage import give_array
from tiga.frontends.tensor.waiting import stands_for_many
from tiga.frontends.trees import mapped
from tiga.runtime import parallel
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.mapped import file_at, written
from tiga.runtime.pages import FileRows, MemoryRows, Rows
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL


@dataclass(frozen=True)
class PagedCall(GraphCall):
    """Output number `index` of a program over a graph in a file."""

    def called(self, walk: Walk, inputs: Sequence[Node], wanted: Sequence[int]) -> list[Node]:
        return [*nodes(walk, inputs, wanted)]

    def gradients(self, walk: Walk, arguments: Sequence[Node], of: Sequence[Node]) -> list[Node]:
        """Each where its input is."""
        return [*nodes(walk, arguments, range(len(of)), of)]


def made(
    walk: Walk, inputs: Sequence[Node], tree: Any, grad: bool, fields: Iterable[Tensor]
) -> Any:
    """The results of a call, computed now: one, or a tree of them by number.

    Raises:
        UnsupportedByBackend: a field has no value, as it stands for many.
    """
    note_writes(fields)
    found: dict[int, Tensor] = {}

    def output(index: int) -> Tensor:
        if index not in found:
            (node,) = nodes(walk, inputs, [index])
            found[index] = tensor_of(node, grad)
        return found[index]

    return output(0) if tree == 0 else mapped(output, tree)


def note_writes(fields: Iterable[Tensor]) -> None:
    """Let memory that was written to no longer stand for the file that it was mapped from."""
    for tensor in fields:
        if tensor.version and isinstance(tensor._array, np.ndarray):
            written(tensor._array.ctypes.data)


def nodes(
    walk: Walk, inputs: Sequence[Node], wanted: Sequence[int], like: Sequence[Node] = ()
) -> list[LazyNode]:
    """Outputs of a program, computed now: nodes that know what they are made of. Those with an
    input that they are `like` come to where that is."""
    arrays = [computed_array(node) for node in inputs]
    found = []
    for place, index in enumerate(wanted):
        array = walk.output(index, arrays)
        if like:
            array = _brought(array, computed_array(like[place]), walk.graph)
        op = PagedCall(walk, index)
        node = LazyNode(op, tuple(inputs), op.infer(), user_place(), 1, LARGE)
        node.cell = Cell(array)
        found.append(node)
    return found


def tensor_of(node: LazyNode, grad: bool) -> Tensor:
    """The tensor of a computed node; without derivatives it forgets its operands."""
    assert node.cell is not None
    array, grad = node.cell.array, grad and node.type.dtype.is_differentiable
    tensor = Tensor(node if grad else leaf(array, node.type, node.place), grad)
    give_array(tensor, array)
    tensor._execution = {"backend": "pages", "saved_bytes": 0}
    return tensor


def computed_array(node: Node) -> Any:
    """The value of a node, computed now if need be; what is the same everywhere takes the memory of
    one element."""
    if node.cell is not None:
        return node.cell.array
    array = _evaluated(node)
    if isinstance(node, LazyNode):
        node.cell = Cell(array)
    return array


def is_repeated(node: Node) -> bool:
    """Whether a value is one element everywhere."""
    return bool(node.op.broadcasts) and node.inputs[0].type.size == 1


def _evaluated(node: Node) -> Any:
    from tiga.frontends.tensor.evaluate import value_of

    if node.op.origin is Origin.NUMBER:
        return np.broadcast_to(np.asarray(node.op.value, node.type.dtype.numpy), node.type.shape)
    if is_repeated(node):
        one: Any = computed_array(node.inputs[0])
        return np.broadcast_to(one.reshape((1,) * len(node.type.shape)), node.type.shape)
    if stands_for_many(node):
        raise UnsupportedByBackend(
            f"a call on a graph in a file needs the values of its operands, and one stands for "
            f"many ({here()}): use `graph.in_memory()`."
        )
    return value_of(node)


def _brought(array: Any, like: Any, graph: Any) -> Any:
    """A result of a call over a graph where another array is."""
    if not isinstance(array, DeviceArray) or isinstance(like, DeviceArray):
        return array
    from tiga.frontends.tensor.messages.paged_gpu import fetched

    return fetched(array, graph)


def device_of(graph: Any) -> Device:
    """Where a graph in a file runs."""
    return check_device(graph.device)


def run_on_pages(launch: Launch, graph: Any, arrays: Sequence[Any]) -> list[Any]:
    """All outputs of a program over a graph in a file, on its device or mapped from files.

    Raises:
        OutOfBudget: a page of one row does not fit.
        InvalidFile: the file names an edge that cannot be.
        UnsupportedByBackend: the program needs all of a set in memory.
    """
    from tiga.backends.llvm.paged.calls import Call

    device = device_of(graph)
    if device != CPU:
        from tiga.frontends.tensor.messages.paged_gpu import run_on_gpu_pages

        return run_on_gpu_pages(launch, graph, arrays, device.index)
    for array in arrays:
        if isinstance(array, DeviceArray):
            raise InvalidValue(
                f"an operand is on cuda:{array.machine.index}, and the graph in a file runs on the "
                f"CPU ({here()}): open it with device='cuda', or use .cpu()."
            )
    given = [np.ascontiguousarray(a) if n.type.space == GLOBAL else a
             for a, n in zip(arrays, launch.program.inputs, strict=True)]  # fmt: skip
    inputs = [a.ctypes.data if n.type.space == GLOBAL else rows_of(a, graph)
              for a, n in zip(given, launch.program.inputs, strict=True)]  # fmt: skip
    executable, extents = launch.compiled.executable, extents_of(launch.program, graph)
    outputs = Call(executable, graph, extents, parallel.thread_count()).run(inputs)
    launch.ran_on_cpu = True
    return outputs


def rows_of(array: np.ndarray, graph: Any) -> Rows:
    """Where the rows of an operand lie: in a file if its memory is mapped from one, else in memory.
    Memory that was written to is no longer known as mapped (see `made`)."""
    found = file_at(array.ctypes.data, array.nbytes) if array.flags.c_contiguous else None
    if found is None or not array.nbytes:
        return MemoryRows(array)
    count = array.shape[0]
    width = array.nbytes // count
    return FileRows(found.fd, found.offset, count, width, graph.traffic, found)
