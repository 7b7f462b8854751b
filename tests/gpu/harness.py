"""Run programs through the Triton backend and compare them with the numpy oracle.

On a machine with a GPU the kernels are compiled; with TRITON_INTERPRET=1 and no GPU, Triton's
interpreter runs the same text on CPU tensors.
"""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch

from tiga.backends.reference import EdgeList, evaluate
from tiga.passes.differentiate import RULES
from tiga.relations import Graph
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Relation, Space

SRC, DST = Space("src", "node"), Space("dst", "node")
RELATION = Relation("r", SRC, DST)


def device() -> torch.device | None:
    """Where kernels can run: a GPU, the CPU under the interpreter, or nowhere."""
    if importlib.util.find_spec("triton") is None:
        return None
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if os.environ.get("TRITON_INTERPRET") == "1" else None


def to_tensor(array: np.ndarray, where: torch.device) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(where)
    return torch.from_numpy(array).to(where)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.cpu().numpy()


@dataclass(frozen=True)
class Problem:
    """A graph, with its edges for the oracle."""

    graph: Graph
    edges: EdgeList

    def extent(self, space: Space) -> int:
        sizes = {SRC: self.graph.num_src, DST: self.graph.num_dst, GLOBAL: 1}
        return sizes.get(space, self.graph.num_edges)

    def shape(self, node) -> tuple[int, ...]:
        lead = () if node.type.space == GLOBAL else (self.extent(node.type.space),)
        return (*lead, *node.type.shape)


def problem(rng: np.random.Generator, num_src: int, num_dst: int, degrees) -> Problem:
    """A graph whose destination `d` has `degrees[d]` edges from random sources."""
    dst = np.repeat(np.arange(num_dst), degrees)
    src = rng.integers(0, num_src, len(dst)) if num_src else np.empty(0, np.int64)
    graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    return Problem(graph, EdgeList(src, dst, num_src, num_dst))


def fields(rng: np.random.Generator, where: Problem, inputs: Sequence) -> list[np.ndarray]:
    """Random values for inputs; booleans are true half of the time."""
    found = []
    for node in inputs:
        shape, dtype = where.shape(node), node.type.dtype
        if dtype.kind == "f":
            found.append(rng.standard_normal(shape).astype(dtype.numpy))
        elif dtype.kind == "b":
            found.append(rng.random(shape) < 0.5)
        else:
            found.append(rng.integers(-5, 6, shape).astype(dtype.numpy))
    return found


def run(program: Program, arrays: Sequence[np.ndarray], where: Problem, executable=None):
    """The outputs of a program; two runs must agree in every bit."""
    from tiga.backends.triton.executable import compile_program

    executable = executable or compile_program(program)
    tensors = [to_tensor(a, device()) for a in arrays]
    results = []
    for _ in range(2):
        outputs = [
            torch.full(where.shape(n), 77, dtype=getattr(torch, n.type.dtype.name), device=device())
            for n in program.outputs
        ]
        extents = {SRC: where.graph.num_src, DST: where.graph.num_dst}
        extents[RELATION.edge] = where.graph.num_edges
        executable.run([where.graph] * len(program.relations), tensors, outputs, extents)
        results.append([to_array(o) for o in outputs])
    for first, second in zip(*results, strict=True):
        assert first.tobytes() == second.tobytes(), "two runs differ"
    return results[0]


def oracle(program: Program, arrays: Sequence[np.ndarray], where: Problem) -> list[np.ndarray]:
    return evaluate(program, arrays, {RELATION: where.edges})


TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-10}


def assert_close(got: np.ndarray, expected: np.ndarray, dtype: DType, what: str) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    if dtype.kind != "f":
        assert (got == expected).all(), what
        return
    a, b = got.astype(np.float64), expected.astype(np.float64)
    assert (np.isnan(a) == np.isnan(b)).all(), f"{what}: NaN in other places"
    finite = np.isfinite(b)
    assert (a[~finite & ~np.isnan(b)] == b[~finite & ~np.isnan(b)]).all(), f"{what}: infinities"
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0)))
    error = float(np.abs(a[finite] - b[finite]).max(initial=0)) / scale
    assert error <= TOLERANCE[dtype.name], f"{what}: error {error:.2e}"


def check(
    program: Program,
    arrays: Sequence[np.ndarray],
    where: Problem,
    wanted: Sequence[int],
    order: int,
    reference: Sequence[np.ndarray] | None = None,
) -> None:
    """Values, then gradients up to `order`, each walk against the oracle.

    Gradients read what the forward walk saved, and compare messages with maxima in it: kernels
    get what kernels saved, the oracle what the oracle did (`reference`).
    """
    reference = arrays if reference is None else reference
    full = training(program, wanted, RULES) if order else program
    outputs, expected = run(full, arrays, where), oracle(full, reference, where)
    for got, want, node in zip(outputs, expected, full.outputs, strict=True):
        assert_close(got, want, node.type.dtype, f"value {node!r}")
    if not order:
        return
    found = gradient(full, wanted, [0], RULES)
    rng = np.random.default_rng(5)
    cotangent = {0: rng.standard_normal(outputs[0].shape).astype(outputs[0].dtype)}
    ours = {"input": arrays, "output": outputs, "cotangent": cotangent}
    theirs = {"input": reference, "output": expected, "cotangent": cotangent}
    sides = [[side[kind][i] for kind, i in found.arguments] for side in (ours, theirs)]
    floats = [
        i
        for i, (kind, _) in enumerate(found.arguments)
        if kind != "output" and found.program.inputs[i].type.dtype.is_float
    ]
    check(found.program, sides[0], where, floats, order - 1, sides[1])
