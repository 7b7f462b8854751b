"""The compiler of whole-tensor programs: program -> kernels and library calls -> values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from tiga.backends.llvm.dense.adds import add_at, build_adds, compile_adds, form_of
from tiga.backends.llvm.dense.extrema import blocks_step, compile_blocks, position_of_extremum
from tiga.backends.llvm.dense.kernel import build
from tiga.backends.llvm.dense.run import Template, bind, template
from tiga.backends.llvm.engine import compile_module
from tiga.backends.reference.dense import call_op
from tiga.errors import InvalidValue
from tiga.ops.dense import Deferred
from tiga.ops.feature import Permute, Reshape
from tiga.ops.tensor_index import AddAt
from tiga.passes.rows import LibraryCall
from tiga.passes.tensor_axes import for_kernels, is_position_of_all
from tiga.passes.tensor_fusable import KNOWN
from tiga.passes.tensor_identity import semantic_hash
from tiga.passes.tensor_plan import plan
from tiga.passes.tensor_sink import sink_moves
from tiga.passes.tensor_spec import KernelStep, TensorStep, last_reads
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program

Body = Callable[..., np.ndarray]
Run = Callable[..., list[np.ndarray]]

STAGES = ("gf_tensor", "loops", "llvm")


@dataclass(frozen=True)
class TensorExecutable:
    """A whole-tensor program as steps; `source` is the program before it took their form. Not
    `relaxed`, sums add element after element."""

    program: Program
    steps: tuple[TensorStep, ...]
    source: Program
    relaxed: bool

    @cached_property
    def kernels(self) -> tuple[KernelStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, KernelStep))

    @property
    def backend(self) -> str:
        """What computes the program."""
        compiled = any(map(_has_code, self._single))
        return "cpu-llvm" if self.kernels or compiled else "numpy-blas"

    @property
    def _single(self) -> list[Node]:
        """The ops that are steps by themselves."""
        return [step.node for step in self.steps if isinstance(step, LibraryCall)]

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """The ops that numpy computes; views cost nothing and are left out."""
        views = (Reshape, Permute)
        called = (n for n in self._single if not isinstance(n.op, views) and not _has_code(n))
        return tuple(n.op.name for n in called)

    @cached_property
    def semantic_hash(self) -> str:
        """What tells the program from others: equal programs have equal hashes."""
        return semantic_hash(self.source)

    @cached_property
    def constants(self) -> dict[Node, np.ndarray]:
        """What depends on no input, as arrays with few elements in memory, whatever their
        extents."""
        found = [node for node in self.program.order if node.op.origin in KNOWN]
        return {node: _constant(node) for node in found}

    @cached_property
    def _released(self) -> list[list[Node]]:
        """After each step, the values that are read no more."""
        kept = {*self.program.outputs, *self.program.inputs, *self.constants}
        return last_reads(self.steps, kept)

    @cached_property
    def fresh(self) -> bool:
        """Whether every output is an array that a kernel made, for this output alone."""
        made = [node for step in self.kernels for node in step.outputs]
        outputs = self.program.outputs
        return len(set(outputs)) == len(outputs) and set(outputs) <= set(made)

    @cached_property
    def templates(self) -> dict[int, Template]:
        """The kernels by the number of their step, compiled."""
        kernels = enumerate(self.steps)
        return {i: template(step) for i, step in kernels if isinstance(step, KernelStep)}

    @property
    def is_compiled(self) -> bool:
        """Whether its kernels have machine code."""
        return "templates" in self.__dict__

    @property
    def kernels_from_disk(self) -> int:
        """Kernels whose machine code an earlier process wrote."""
        if not self.is_compiled:
            return 0
        return sum(made.code.library.from_disk for made in self.templates.values())

    def compile(self) -> float:
        """Compile what is not compiled yet, or take it from disk; milliseconds spent."""
        start = perf_counter()
        assert len(self.templates) == len(self.kernels)
        for node in filter(_has_code, self._single):
            _compile(node)
        return (perf_counter() - start) * 1e3

    @cached_property
    def run(self) -> "Run":
        """What gives the outputs for given inputs, and bodies of the calls that were deferred."""
        wiring = Wiring.of(self)
        return wiring.run if wiring.alone is None else wiring.alone.run

    @cached_property
    def scratch_bytes(self) -> int:
        """The most bytes that values between steps take at once, beside inputs and outputs."""
        outputs = set(self.program.outputs)
        live = peak = 0
        for number, step in enumerate(self.steps):
            live += sum(n.type.row_bytes for n in step.writes if n not in outputs)
            peak = max(peak, live)
            gone = (n for n in self._released[number] if n not in outputs)
            live -= sum(n.type.row_bytes for n in gone)
        return peak


def _constant(node: Node) -> np.ndarray:
    if node.op.origin is Origin.POSITION:
        return np.asarray(node.op.compute())
    return np.broadcast_to(np.asarray(node.op.value, node.type.dtype.numpy), node.type.shape)


@dataclass(frozen=True)
class Wire:
    """A step by the places of its values: what does it, what it reads, writes, and lets go."""

    work: Template | Node
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    released: tuple[int, ...]


@dataclass(frozen=True)
class Wiring:
    """An executable with numbered values, so that a run looks nothing up: inputs come first, then
    constants and what the steps compute. `alone` is the one kernel of an executable that is no
    more than that."""

    wires: tuple[Wire, ...]
    outputs: tuple[int, ...]
    rest: tuple[np.ndarray | None, ...]
    alone: Template | None
    relaxed: bool

    @staticmethod
    def of(executable: TensorExecutable) -> "Wiring":
        """The wiring of an executable, whose kernels are compiled for it."""
        program, constants = executable.program, executable.constants
        place = {node: i for i, node in enumerate((*program.inputs, *constants))}
        wires = []
        for number, step in enumerate(executable.steps):
            for node in step.writes:
                place.setdefault(node, len(place))
            work = executable.templates[number] if isinstance(step, KernelStep) else step.node
            wires.append(Wire(
                work, *(tuple(place[n] for n in nodes) for nodes in
                        (step.reads, step.writes, executable._released[number]))
            ))  # fmt: skip
        computed = len(place) - len(program.inputs) - len(constants)
        rest = (*constants.values(), *(None,) * computed)
        outputs = tuple(place[n] for n in program.outputs)
        alone = _alone(wires, len(program.inputs), outputs)
        return Wiring(tuple(wires), outputs, rest, alone, executable.relaxed)

    def run(self, arrays: Sequence[np.ndarray], bodies: Sequence[Body] = ()) -> list[np.ndarray]:
        """See `TensorExecutable.run`."""
        values: list[Any] = [*arrays, *self.rest]
        for wire in self.wires:
            given = [values[i] for i in wire.reads]
            if isinstance(wire.work, Node) and isinstance(wire.work.op, Deferred):
                values[wire.writes[0]] = bodies[wire.work.op.number](*given)
            elif isinstance(wire.work, Node):
                values[wire.writes[0]] = call_library(wire.work, given, self.relaxed)
            else:
                for place, array in zip(wire.writes, wire.work.run(given), strict=True):
                    values[place] = array
            for place in wire.released:
                values[place] = None
        return [values[i] for i in self.outputs]


def _alone(wires: Sequence[Wire], inputs: int, outputs: tuple[int, ...]) -> Template | None:
    first = wires[0] if len(wires) == 1 else None
    if first is None or not isinstance(first.work, Template):
        return None
    whole = first.reads == tuple(range(inputs)) and first.writes == outputs
    return first.work if whole else None


@dataclass(frozen=True)
class Prepared:
    """A program bound to memory: running it computes its one output again, in place."""

    calls: tuple[Callable[[], Any], ...]
    kept: tuple[Any, ...]

    def run(self) -> None:
        """Compute the output from what the inputs hold now."""
        for call in self.calls:
            call()


def prepare_tensors(
    executable: TensorExecutable, arrays: Sequence[np.ndarray], output: np.ndarray
) -> Prepared:
    """Bind an executable with one output to the memory of its inputs and its output."""
    program = executable.program
    known: dict[Node, np.ndarray] = {}
    calls: list[Callable[[], Any]] = []
    kept: list[Any] = []
    for node, array in zip(program.inputs, arrays, strict=True):
        known[node] = array if array.flags.c_contiguous else _refreshed(array, calls)
    known.update(executable.constants)
    given = {program.outputs[0]: output}
    for number, step in enumerate(executable.steps):
        if isinstance(step, KernelStep):
            loaded = [known[load.node] for load in step.loads]
            places = [given.get(node) for node in step.outputs]
            bound = bind(executable.templates[number], loaded, places)
            kept.append(bound)
            known.update(zip(step.outputs, bound.stored, strict=True))
            calls.append(bound.serial or bound.run)
        else:
            known[step.node] = _bind_library(step.node, known, given, calls)
    if known[program.outputs[0]] is not output:
        calls.append(partial(np.copyto, output, known[program.outputs[0]]))
    return Prepared(tuple(calls), (*kept, *known.values()))


def _refreshed(array: np.ndarray, calls: list[Callable[[], Any]]) -> np.ndarray:
    """A contiguous copy that every run renews."""
    copy = np.array(array, order="C")
    calls.append(partial(np.copyto, copy, array))
    return copy


def _bind_library(
    node: Node,
    known: dict[Node, np.ndarray],
    given: Mapping[Node, np.ndarray],
    calls: list[Callable[[], Any]],
) -> np.ndarray:
    inputs = [known[child] for child in node.inputs]
    place = given.get(node)
    if place is None:
        place = np.empty(node.type.shape, node.type.dtype.numpy)

    def run() -> None:
        np.copyto(place, call_library(node, inputs))

    calls.append(run)
    return place


def _adds(node: Node) -> bool:
    """Whether a loop of its own computes the op: sums at positions."""
    adds = isinstance(node.op, AddAt)
    return adds and node.type.dtype.kind != "b" and all(n.type.size for n in node.inputs)


def _has_code(node: Node) -> bool:
    """Whether an op that is a step by itself is compiled."""
    return _adds(node) or is_position_of_all(node)


def _compile(node: Node) -> None:
    if _adds(node):
        compile_adds(form_of(node))
    else:
        compile_blocks(node)


def call_library(node: Node, arrays: Sequence[np.ndarray], relaxed: bool = True) -> np.ndarray:
    """One op by numpy, or by a compiled loop of its own; not `relaxed`, sums add in order."""
    if _adds(node):
        values, index = arrays
        return add_at(node, values, index, relaxed)
    if is_position_of_all(node):
        return position_of_extremum(node, *arrays)
    with np.errstate(all="ignore"):
        return call_op(node, arrays)


def plan_tensors(program: Program, native: bool, relaxed: bool = True) -> TensorExecutable:
    """The executable of a whole-tensor program, which nothing else remembers."""
    formed = sink_moves(for_kernels(program), native)
    return TensorExecutable(formed, plan(formed, native, relaxed), program, relaxed)


@lru_cache(maxsize=256)
def compile_tensors(
    program: Program, native: bool = False, relaxed: bool = True
) -> TensorExecutable:
    """The executable of a whole-tensor program, planned once; its kernels are compiled at their
    first run, and shared by every program that needs the same code."""
    return plan_tensors(program, native, relaxed)


def tensor_code(program: Program, stage: str) -> str:
    """The text of one stage of a whole-tensor program.

    Raises:
        InvalidValue: there is no such stage.
    """
    if stage not in STAGES:
        raise InvalidValue(f"generated_code expected one of {', '.join(STAGES)}, got {stage!r}.")
    if stage == "gf_tensor":
        return tensor_text(program)
    texts: list[str] = []
    for module in _modules(compile_tensors(program, True)):
        if stage == "loops":
            texts.append(str(module))
        else:
            texts.append(str(compile_module(module, keep_llvm_ir=True).llvm_ir()))
    return "\n".join(texts)


def _modules(executable: TensorExecutable) -> Iterator[Any]:
    """What is compiled for a program, in order."""
    for step in executable.steps:
        if isinstance(step, KernelStep):
            yield build(step.spec)
        elif _adds(step.node):
            yield build_adds(form_of(step.node))
        elif is_position_of_all(step.node):
            yield build(blocks_step(step.node).spec)


def tensor_text(program: Program, *, verify: bool = False) -> str:
    """The program as a `gf_tensor` module.

    Args:
        verify: also run the native verifier, parse the text again, and compare the programs.
    """
    from tiga.passes.tensor_text import program_text

    return program_text(program, verify=verify)


def explain(executable: TensorExecutable) -> dict[str, Any]:
    """What an executable consists of."""
    return {"kernels": len(executable.kernels), "library_calls": executable.calls}
