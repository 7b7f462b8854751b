"""Programs ready to run on torch tensors, with their derivative programs, made when first asked."""

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import torch

from tiga.compiler import Compiled, executable, normalize, settings
from tiga.errors import Unfusable, bare
from tiga.frontends.spaces import EXTENTS
from tiga.frontends.torch.bound_run import CPU, BoundRun
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.frontends.torch.layouts import layout_of
from tiga.ops.leaf import stop_gradient
from tiga.passes.differentiate import RULES, trainable
from tiga.passes.rows import PAGED, RowProgram
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime.parallel import thread_count
from tiga.trace.derivatives import Gradient, gradient, tangent
from tiga.trace.program import Program
from tiga.types import GLOBAL, Space

if TYPE_CHECKING:
    from tiga.frontends.torch.gpu import GpuRuns
    from tiga.frontends.torch.gpu_replay import Replay

PARALLEL_ELEMENTS = 32768
"""Programs that touch fewer elements stay on the calling thread, as torch's own ops do: to wake
the others costs more, and far more where they share their cores. The results are the same."""

Made = TypeVar("Made")

_C_TYPES = {"float64": ctypes.c_double, "int64": ctypes.c_int64}


class Runnable:
    """A program with the allocation of its outputs; each device compiles it when it first runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.refused: dict[bool, Unfusable] = {}
        self.replay: Replay | None = None
        """Leads a run where the last one on a GPU went."""
        self.outputs = [layout_of(n.type) for n in program.outputs]
        self.width = max((n.type.size for n in program.order if n.type.space != GLOBAL), default=1)
        self.inputs = [_C_TYPES.get(n.type.dtype.name) for n in program.inputs]
        spaces = {n.type.space for n in program.order if n.type.space != GLOBAL}
        self.extents = {space: EXTENTS[space.name] for space in spaces}
        related = {s for r in program.relations for s in (r.src, r.dst, r.edge)}
        self.is_related = spaces <= related
        """Whether the relations of the program fix the extents of all its spaces."""

    @cached_property
    def executable(self) -> Compiled:
        """The program compiled for the CPU."""
        return self._unless_refused(False, executable)

    @cached_property
    def gpu_runs(self) -> "GpuRuns":
        """The runs on GPUs."""
        from tiga.frontends.torch.gpu import GpuRuns, gpu_executable

        return GpuRuns(self._unless_refused(True, gpu_executable))

    def _unless_refused(self, gpu: bool, compiled: Callable[[Program], Made]) -> Made:
        if gpu in self.refused:
            raise bare(self.refused[gpu])
        try:
            return compiled(self.program)
        except Unfusable as reason:
            self.refused[gpu] = bare(reason)
            raise

    def compile(self, device: torch.device) -> None:
        """Compile for a device, if that is still to be done.

        Raises:
            Unfusable: no kernel of that device computes the program.
        """
        _ = self.gpu_runs if on_gpu(device) else self.executable

    @property
    def is_compiled(self) -> bool:
        """Whether it was compiled for some device."""
        return not {"executable", "gpu_runs"}.isdisjoint(vars(self))

    @property
    def ran_on_gpu(self) -> bool:
        """Whether some call ran it on a GPU."""
        runs = vars(self).get("gpu_runs")
        return runs is not None and runs.has_run

    def allocate(self, graph: Graph) -> list[torch.Tensor]:
        """Arrays for the outputs."""
        counts: Any = graph if graph.paged else graph.snapshot()
        return self.allocate_for(counts, device_of(graph))

    def allocate_for(self, topology: Snapshot, device: torch.device) -> list[torch.Tensor]:
        """As `allocate`, for the topology of a graph."""
        return [
            torch.empty(layout.of(topology), dtype=layout.dtype, device=device)
            for layout in self.outputs
        ]

    def run(
        self,
        graph: Any,
        values: Sequence[Any],
        topology: Snapshot | None = None,
        unneeded: tuple[int, ...] = (),
    ) -> list[torch.Tensor]:
        """Compute the outputs from contiguous tensors and Python numbers; `graph` may be paged.
        `topology` is its snapshot, where the caller has just taken it. The values at positions
        `unneeded` may be written over."""
        if graph.paged:
            from tiga.frontends.torch.paged import run_on_pages

            return run_on_pages(self, graph, values)
        at: Snapshot = graph.snapshot() if topology is None else topology
        replay = self.replay
        if replay is not None and replay.topology() is at:
            found = replay.run(values)
            if found is not None:
                return found
        device = device_of(graph)
        if on_gpu(device):
            return self.run_on_gpu(at, values, device)
        return self.run_on_cpu(at, values, unneeded)

    def run_on_cpu(
        self, topology: Snapshot, values: Sequence[Any], unneeded: tuple[int, ...] = ()
    ) -> list[torch.Tensor]:
        """As `run`, for a topology on the CPU."""
        outputs = self.allocate_for(topology, CPU)
        self._run_on_cpu(topology, values, outputs, unneeded)
        return outputs

    def run_on_gpu(
        self, topology: Snapshot, values: Sequence[Any], device: torch.device
    ) -> list[torch.Tensor]:
        """As `run`, for a topology on a GPU.

        Raises:
            OutOfDeviceMemory: the device has not enough memory left; nothing was changed.
        """
        runs = self.gpu_runs
        try:
            outputs = self.allocate_for(topology, device)
            self.replay = runs.run(topology, values, outputs, device, self._sizes(topology))
        except torch.OutOfMemoryError as error:
            nbytes = sum(math.prod(o.of(topology)) * o.dtype.itemsize for o in self.outputs)
            raise runs.out_of_memory(topology, device, nbytes) from error
        return outputs

    def prepare(
        self, graph: Graph, values: Sequence[Any], outputs: Sequence[torch.Tensor]
    ) -> Callable[[], None]:
        """A launch that computes these outputs from what these values hold then."""
        topology, device = graph.snapshot(), device_of(graph)
        self.compile(device)
        if on_gpu(device):
            extents = self._sizes(topology)
            return self.gpu_runs.prepare(topology, values, outputs, device, extents)
        return partial(self._run_on_cpu, topology, values, outputs)

    def bound_to(self, topology: Snapshot) -> BoundRun | None:
        """The program on a topology on the CPU, for tensors; None if it has no relation."""
        if not self.program.relations:
            return None
        launch = self.executable.launch_on((topology,))
        outputs = tuple((layout.of(topology), layout.dtype) for layout in self.outputs)
        return BoundRun(outputs, launch, self._is_small(topology))

    def _is_small(self, topology: Snapshot) -> bool:
        entities = topology.num_edges + topology.num_src + topology.num_dst
        return self.width * entities < PARALLEL_ELEMENTS

    def _sizes(self, topology: Snapshot) -> dict[Space, int]:
        """The extents that no relation fixes."""
        if self.is_related:
            return {}
        return {s: getattr(topology, e) for s, e in self.extents.items()}

    def _run_on_cpu(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        unneeded: tuple[int, ...] = (),
    ) -> None:
        numbers: list[Any] = []
        addresses: list[int] = []
        for value, c_type in zip(values, self.inputs, strict=True):
            if isinstance(value, torch.Tensor):
                addresses.append(value.data_ptr())
                continue
            number: Any = c_type(value)  # type: ignore[misc]
            numbers.append(number)
            addresses.append(ctypes.addressof(number))
        destinations = [output.data_ptr() for output in outputs]
        threads = 1 if self._is_small(topology) else thread_count(torch.get_num_threads())
        graphs = (topology,) if self.program.relations else ()
        sizes = None if graphs else self._sizes(topology)
        run = self.executable.run
        run(graphs, addresses, destinations, threads, sizes, unneeded=unneeded)


@dataclass(frozen=True)
class Derivative:
    """A gradient program as a unit, and where its arguments come from."""

    unit: "Unit"
    arguments: tuple[tuple[str, int], ...]
    wanted: tuple[int, ...]


class Trained:
    """The training form of a program for the gradients of some of its inputs; with `bits` it keeps
    conditions of edges."""

    def __init__(self, program: Program, wanted: tuple[int, ...], bits: bool) -> None:
        self.wanted = wanted
        self.runnable = Runnable(trainable(program, wanted, bits=bits))
        full = self.runnable.program
        self.num_results = len(program.outputs)
        moves = [n.type.dtype.is_float and n.op != stop_gradient for n in full.outputs]
        self.floats = tuple(i for i, does in enumerate(moves) if does)
        self.whole = tuple(i for i, does in enumerate(moves) if not does)
        self.derivatives: dict[tuple[tuple[int, ...], tuple[int, ...]], Derivative] = {}
        fields = [program.inputs[i].type.space != GLOBAL for i in wanted]
        self.ask_order = sorted(enumerate(fields), key=lambda of: of[1])
        """Positions in `wanted`, and whether there are fields, which come last."""
        self.tangents: dict[tuple[int, ...], tuple[Unit, list[int]]] = {}
        self.lock = threading.Lock()
        self.per_sample: str | None = None
        """Why samples of a batch ran one after the other, if they did."""
        self.ready: set[str] = set()
        """The kinds of devices that it, and its first gradient, are compiled for."""

    def compile(self, device: torch.device, count: int) -> None:
        """Compile it for a device, with the gradient of its first `count` outputs."""
        self.runnable.compile(device)
        present = tuple(i for i in self.floats if i < count)
        if present:
            self.derivative(present).unit.plain().compile(device)
        self.ready.add(device.type)

    def require_pages(self, device: torch.device, count: int) -> None:
        """Raise Unfusable if no pages hold the gradient of the first `count` outputs."""
        present = tuple(i for i in self.floats if i < count)
        if present and on_gpu(device):
            self.derivative(present).unit.plain().gpu_runs.executable.require_pages()
            return
        for step in self.gradient_walks(count):
            if not step.fills_tables:
                step.refuse_large_sums(PAGED)

    def gradient_walks(self, count: int) -> list[RowProgram]:
        """The row programs, on the CPU, of the gradient of the first `count` outputs."""
        present = tuple(i for i in self.floats if i < count)
        if not present:
            return []
        steps = self.derivative(present).unit.plain().executable.scheduled.plan.steps
        return [step for step in steps if isinstance(step, RowProgram)]

    def _gradient(self, present: tuple[int, ...], wanted: tuple[int, ...]) -> Gradient:
        return gradient(self.runnable.program, wanted, present, RULES)

    @cached_property
    def saved(self) -> tuple[list[int], list[int]]:
        """Inputs and outputs that a gradient of all outputs reads."""
        found = self._gradient(self.floats, self.wanted)
        inputs = sorted({i for kind, i in found.arguments if kind == "input"})
        outputs = sorted({i for kind, i in found.arguments if kind == "output"})
        return inputs, outputs

    def derivative(
        self, present: tuple[int, ...], wanted: tuple[int, ...] | None = None
    ) -> Derivative:
        """The gradient program when these outputs have a cotangent, of all or some inputs."""
        wanted = self.wanted if wanted is None else wanted
        found = self.derivatives.get((present, wanted))
        if found is None:
            made = self._gradient(present, wanted)
            found = Derivative(unit_of(made.program), made.arguments, made.wanted)
            found = self.derivatives.setdefault((present, wanted), found)
        return found

    def tangent(self, moving: tuple[int, ...]) -> tuple["Unit", list[int]]:
        """The program of the outputs' tangents when these inputs have one: its arguments are the
        inputs, then their tangents. The list says which outputs have a tangent at all."""
        with self.lock:
            found = self.tangents.get(moving)
            if found is None:
                program = self.runnable.program
                made, live = tangent(program, moving, RULES)
                found = self.tangents[moving] = unit_of(made), live
        return found


class Unit:
    """One program: how to run it, and how to run it so that gradients can follow."""

    def __init__(self, program: Program) -> None:
        self.program = normalize(program)
        self.lock = threading.RLock()
        self._plain: Runnable | None = None
        self.trained: dict[tuple[tuple[int, ...], bool], Trained] = {}
        self.refused: dict[tuple[tuple[int, ...], str], Unfusable] = {}

    def plain(self) -> Runnable:
        """The program alone."""
        if self._plain is None:
            with self.lock:
                if self._plain is None:
                    self._plain = Runnable(self.program)
        return self._plain

    def training(self, wanted: tuple[int, ...], device: torch.device) -> Trained:
        """The program with what the gradients of these inputs need, compiled for a device.

        Raises:
            Unfusable: it, or its first gradient program, cannot be compiled for it.
        """
        # On a CPU memory is what calls are to save first. Graphs in files keep what others do:
        # walks that evaluate other things may add in another order.
        bits = on_gpu(device)
        found = self.trained.get((wanted, bits))
        if found is None or device.type not in found.ready:
            with self.lock:
                found = self._trained(wanted, device, bits)
        return found

    def _trained(self, wanted: tuple[int, ...], device: torch.device, bits: bool) -> Trained:
        """The training form, once its first gradient program is known to compile: a backward pass
        is too late to take another path."""
        key = (wanted, device.type)
        if key in self.refused:
            raise bare(self.refused[key])
        try:
            found = self.trained.get((wanted, bits)) or Trained(self.program, wanted, bits)
            found.compile(device, len(self.program.outputs))
        except Unfusable as reason:
            self.refused[key] = bare(reason)
            raise
        return self.trained.setdefault((wanted, bits), found)

    def per_sample(self) -> list[str]:
        """Why samples of batches ran one after the other, of it and its derivatives."""
        found = []
        for trained in list(self.trained.values()):
            found += [] if trained.per_sample is None else [trained.per_sample]
            inner = [derivative.unit for derivative in list(trained.derivatives.values())]
            for unit in (*inner, *(unit for unit, _ in list(trained.tangents.values()))):
                found += unit.per_sample()
        return found

    def runnables(self) -> list[tuple[str, Runnable]]:
        """Everything compiled so far, with what it is: derivatives of derivatives included."""
        plain = self._plain
        found = [("forward", plain)] if plain is not None and plain.is_compiled else []
        for trained in list(self.trained.values()):
            found.append(("forward, saving for gradients", trained.runnable))
            for derivative in list(trained.derivatives.values()):
                inner = derivative.unit.runnables()
                found += [(f"gradient: {name}", runnable) for name, runnable in inner]
            for unit, _ in list(trained.tangents.values()):
                found += [(f"tangent: {name}", runnable) for name, runnable in unit.runnables()]
        return found


_units: "WeakValueDictionary[tuple[Any, ...], Unit]" = WeakValueDictionary()
_units_lock = threading.Lock()


def unit_of(program: Program) -> Unit:
    """The unit of a program, shared by all kernels that describe the same one and are compiled with
    the same settings."""
    key = (program, settings())
    with _units_lock:
        found = _units.get(key)
        if found is None:
            found = _units[key] = Unit(program)
    return found
