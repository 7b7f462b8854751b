"""A message-passing program as one op of whole tensors, with derivatives of every order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tiga.backends.llvm.binding import BoundPlan
from tiga.backends.llvm.library import numpy_matmul
from tiga.compiler import Compiled, executable
from tiga.frontends.spaces import EXTENTS
from tiga.frontends.tensor.messages.unasked import Unasked
from tiga.ops.dense import OuterCall
from tiga.passes.differentiate import RULES, trainable
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.runtime.pool import POOL
from tiga.trace.derivatives import Gradient, gradient, tangent
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Shape, Space, Type

SERIAL_BELOW = 32768
"""Elements up to which one thread is faster."""


@lru_cache(maxsize=4096)
def whole(type_: Type, extent: int) -> Type:
    """The type of all entities' values as one tensor."""
    return Type(type_.dtype, (extent, *type_.shape), GLOBAL)


def _extent(topology: Any, space: Space) -> int:
    extent: int = getattr(topology, EXTENTS[space.name])
    return extent


class Launch:
    """A compiled program, with what it takes to run it on any graph."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types = [node.type for node in program.outputs]
        self._extents = [EXTENTS.get(type_.space.name) for type_ in self.types]
        given = {n.type.space for n in (*program.inputs, *program.outputs)} - {GLOBAL}
        self.spaces = tuple(given)
        self.width = max((n.type.size for n in program.order if n.type.space != GLOBAL), default=1)
        self.derived: dict[tuple[str, Any], Launch] = {}
        self.ran_on_cpu = False
        self.gpu_pages: Any = None
        """What the last run over a graph in a file did on a GPU."""

    @property
    def compiled(self) -> Compiled:
        """The program for the CPU, as the knobs say now."""
        return executable(self.program)

    @cached_property
    def on_gpus(self) -> Any:
        """The program for GPUs."""
        from tiga.frontends.tensor.messages.gpu_walk import gpu_executable

        return gpu_executable(self.program)

    @property
    def ran_on_gpu(self) -> bool:
        """Whether a call ran it on a GPU."""
        found = vars(self).get("on_gpus")
        return self.gpu_pages is not None or (found is not None and found.has_run)

    def derive(self, kind: str, key: Any, program: Program) -> "Launch":
        """What computes derivatives of it, kept to be told of."""
        launch = self.derived[kind, key] = launch_of(program)
        return launch

    def type_of(self, index: int, topology: Any) -> Type:
        """The type of an output as one tensor."""
        type_, extent = self.types[index], self._extents[index]
        return type_ if extent is None else whole(type_, getattr(topology, extent))

    def run_on_gpu(self, topology: Any, arrays: Sequence[Any], room: Any) -> list[Any]:
        """All outputs, on a GPU."""
        from tiga.frontends.tensor.messages.gpu_walk import run_walk

        types = [self.type_of(i, topology) for i in range(len(self.types))]
        extents = {space: _extent(topology, space) for space in self.spaces}
        return list(run_walk(self.on_gpus, topology, arrays, types, extents, room))

    def run(self, topology: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All outputs, on a graph or its snapshot."""
        inputs = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        site = self.on(topology)
        outputs = [POOL.array(shape, dtype) for shape, dtype in site.outputs]
        site.plan.run(
            list(map(address, inputs)),
            list(map(address, outputs)),
            1 if site.serial else parallel.thread_count(),
            numpy_matmul,
        )
        return outputs

    def on(self, topology: Any) -> "Site":
        """The program on a graph; a snapshot keeps what was worked out for it."""
        if not isinstance(topology, Snapshot):
            return self._site(topology)
        return topology.keep(("native launch", self), lambda: self._site(topology))

    def _site(self, topology: Any) -> "Site":
        self.ran_on_cpu = True
        types = [self.type_of(i, topology) for i in range(len(self.types))]
        entities = topology.num_edges + topology.num_src + topology.num_dst
        extents = {space: _extent(topology, space) for space in self.spaces}
        plan = self.compiled.executable.plan_on((topology,) * len(self.program.relations), extents)
        outputs = tuple((t.shape, t.dtype.numpy) for t in types)
        return Site(outputs, entities * self.width < SERIAL_BELOW, plan)


class Site(NamedTuple):
    """A compiled program on one topology: shapes and dtypes of its outputs, whether one thread is
    faster, and its plan."""

    outputs: tuple[tuple[Shape, np.dtype], ...]
    serial: bool
    plan: BoundPlan


@lru_cache(maxsize=1024)
def launch_of(program: Program) -> Launch:
    """The program compiled, once."""
    return Launch(program)


def differentiable(program: Program) -> tuple[int, ...]:
    """The inputs that have derivatives."""
    return tuple(i for i, n in enumerate(program.inputs) if n.type.dtype.is_float)


@lru_cache(maxsize=1024)
def trained_program(program: Program, wanted: tuple[int, ...]) -> Program:
    """The program that also returns what its gradient reads."""
    return trainable(program, wanted)


def _saving(launch: Launch, wanted: tuple[int, ...]) -> Launch:
    return launch.derive("saving for gradients", wanted, trained_program(launch.program, wanted))


@dataclass(eq=False)
class Walk:
    """A program on one graph as it was when the call was made. One run computes all outputs:
    those that nobody asked for yet are kept until they are. `trained`: they include what the
    gradient reads."""

    launch: Launch
    graph: Graph
    topology: Any
    token: Any
    trained: bool = False

    @cached_property
    def unasked(self) -> Unasked:
        """The outputs that wait; a program with one has none."""
        return Unasked()

    @staticmethod
    def of(launch: Launch, graph: Graph, topology: Any, grad: bool) -> "Walk":
        """A program on a graph, whose snapshot is `topology` (a paged one itself); `grad`:
        derivatives may be asked for."""
        wanted = differentiable(launch.program) if grad else ()
        if wanted:
            launch = _saving(launch, wanted)
        return Walk(launch, graph, topology, graph.token(), bool(wanted))

    def backward(
        self, index: int, wanted: tuple[int, ...] | None = None
    ) -> tuple[Gradient, Launch]:
        """The gradient of an output of what saves for it, by all or some inputs, and what computes
        it."""
        launch = self.launch
        wanted = differentiable(launch.program) if wanted is None else wanted
        found = _gradient(launch.program, wanted, index)
        return found, launch.derive("gradient", (index, wanted), found.program)

    def output(self, index: int, arrays: Sequence[Any], room: Any = None) -> Any:
        """One output; on a GPU in `room`."""
        several = len(self.launch.types) > 1
        found = self.unasked.take(index, arrays) if several else None
        if found is not None:
            return found
        self.graph.require_unchanged(self.token)
        if self.graph.paged:
            from tiga.frontends.tensor.messages.paged import run_on_pages

            values = run_on_pages(self.launch, self.graph, arrays)
        elif room is None:
            values = self.launch.run(self.topology, arrays)
        else:
            values = self.launch.run_on_gpu(self.topology, arrays, room)
        return self.unasked.but(index, arrays, values) if several else values[index]


@lru_cache(maxsize=1024)
def _gradient(program: Program, wanted: tuple[int, ...], index: int) -> Gradient:
    return gradient(program, wanted, [index], RULES)


@lru_cache(maxsize=1024)
def _tangent(program: Program, moving: tuple[int, ...]) -> tuple[Program, list[int]]:
    return tangent(program, moving, RULES)


@dataclass(frozen=True, init=False)
class GraphCall(OuterCall):
    """Output number `index` of a program over a graph."""

    name: ClassVar[str] = "graph_call"
    walk: Walk
    index: int

    def __init__(self, walk: Walk, index: int) -> None:
        # Every call makes one: setting the fields of a frozen class one by one takes longer.
        self.__dict__.update(walk=walk, index=index)

    def infer(self, *types: Type) -> Type:
        return self.walk.launch.type_of(self.index, self.walk.topology)

    @property
    def form(self) -> tuple[Launch, int]:
        """What is computed, whatever the graph."""
        return self.walk.launch, self.index

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.walk.output(self.index, arrays)

    def compute_on_gpu(self, arrays: Sequence[Any], room: Any) -> Any:
        """The value of operands on a GPU."""
        return self.walk.output(self.index, arrays, room)

    def gpu_code(self, stage: str) -> str:
        """The text of its kernels on a GPU, at a stage of `Tensor.generated_code`."""
        from tiga.frontends.tensor.messages.gpu_walk import walk_code

        return walk_code(self.walk.launch.on_gpus, stage)

    def _walk(self, launch: Launch, trained: bool = False) -> Walk:
        walk = self.walk
        return Walk(launch, walk.graph, walk.topology, walk.token, trained)

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        return self.vjp_of((True,) * len(inputs), ct, out, *inputs)

    def vjp_of(
        self, wanted: Sequence[bool], ct: Node, out: Node, *inputs: Node
    ) -> Sequence[Node | None]:
        walk, floats = self.walk, differentiable(self.walk.launch.program)
        some = tuple(i for i in floats if wanted[i])
        if not some:
            return (None,) * len(inputs)
        if not walk.trained:
            walk = self._walk(_saving(walk.launch, floats), True)
        found, launch = walk.backward(self.index, some)
        read = [i for kind, i in found.arguments if kind == "output"]
        outputs = dict(zip(read, self.called(walk, inputs, read), strict=True))
        known: dict[str, Any] = {"input": inputs, "output": outputs, "cotangent": {self.index: ct}}
        arguments = [known[kind][i] for kind, i in found.arguments]
        backward = self._walk(launch)
        parts: list[Node | None] = [None] * len(inputs)
        of = [inputs[i] for i in found.wanted]
        for i, part in zip(found.wanted, self.gradients(backward, arguments, of), strict=True):
            parts[i] = part
        return parts

    def called(self, walk: Walk, inputs: Sequence[Node], wanted: Sequence[int]) -> list[Node]:
        """Outputs of a program on the same graph."""
        return [GraphCall(walk, index)(*inputs) for index in wanted]

    def gradients(self, walk: Walk, arguments: Sequence[Node], of: Sequence[Node]) -> list[Node]:
        """All outputs of a gradient's program, which are those of some inputs."""
        return self.called(walk, arguments, range(len(of)))

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        moving = tuple(i for i, t in enumerate(tangents) if t is not None)
        program, live = _tangent(self.walk.launch.program, moving)
        if self.index not in live:
            return []
        given = [t for t in tangents if t is not None]
        moved = self._walk(self.walk.launch.derive("tangent", moving, program))
        return self.called(moved, (*inputs, *given), [live.index(self.index)])
