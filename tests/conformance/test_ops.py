"""Every op of messages, in every dtype that it takes, on every backend against the numpy oracle."""

import copy
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tests.compiled import call, extents_of
from tests.conformance.samples import EDGES, NAMES, Sample, samples_of
from tiga.backends.reference import EdgeList, evaluate
from tiga.compiler import Compiled, compile_program
from tiga.ops import Pointwise
from tiga.relations import Graph
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType

BACKENDS: dict[str, Callable[[Program], Compiled]] = {"llvm": compile_program}

DEGREES = [0, 1, 2, 3, 5, 8, 16, 17, 0, 4]
"""Rows without edges, of one edge, of a whole vector of lanes, and of what is left of two."""

ROUNDED = ("add", "sub", "mul", "div", "sqrt")
"""What IEEE arithmetic rounds once, so that every backend has the same bits."""

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5)


@pytest.fixture(scope="module")
def edges() -> EdgeList:
    rng = np.random.default_rng(7)
    dst = np.repeat(np.arange(len(DEGREES)), DEGREES)
    src = rng.integers(0, 6, len(dst))
    return EdgeList(src, dst, 7, len(DEGREES))  # the last source has no edge


@pytest.fixture(scope="module")
def graph(edges: EdgeList) -> Graph:
    return Graph.from_coo(edges.src, edges.dst, num_src=edges.num_src, num_dst=edges.num_dst)


def _takes_any_bits(op) -> bool:
    """Whether special values come out the same: selection and movement, and exact arithmetic."""
    pointwise = isinstance(op, Pointwise)
    return op.name in ROUNDED or (op.exact if pointwise else hasattr(op, "lanes"))


def _floats(rng: np.random.Generator, op, dtype: DType, shape) -> np.ndarray:
    low, high = getattr(op, "domain", (-3.0, 3.0))
    values = rng.uniform(low, high, shape)
    if _takes_any_bits(op) and op.name != "cast":
        special = rng.random(shape) < 0.3
        values = np.where(special, rng.choice(SPECIAL, shape), values)
    return values.astype(dtype.numpy)


def _integers(rng: np.random.Generator, op, dtype: DType, position: int, shape) -> np.ndarray:
    values = rng.integers(0 if dtype.kind == "u" else -9, 10, shape)
    divides = op.name in ("div", "rem") and position == 1
    return np.where(divides & (values == 0), 3, values).astype(dtype.numpy)


def _array(rng: np.random.Generator, op, node: Node, position: int, extent: int) -> np.ndarray:
    shape = (*(() if node.type.space == GLOBAL else (extent,)), *node.type.shape)
    dtype = node.type.dtype
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float:
        return _floats(rng, op, dtype, shape)
    return _integers(rng, op, dtype, position, shape)


def _comparable(array: np.ndarray) -> np.ndarray:
    """Floats as float64: numpy's checks do not know those of 16 bits that are not its own."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _same(got: np.ndarray, want: np.ndarray, message: str) -> None:
    """Equal, the sign of zeros included; a NaN has no sign."""
    got, want = _comparable(got), _comparable(want)
    np.testing.assert_array_equal(got, want, message)
    if want.dtype.kind == "f":
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known], message)


def _close(got: np.ndarray, want: np.ndarray, dtype: DType, terms: int, message: str) -> None:
    """Within a few roundings, of each of `terms` where a result is a sum."""
    eps = max(_eps(dtype), _eps(dtype.compute) * 8 * terms)
    got, want = _comparable(got), _comparable(want)
    scale = np.abs(want).max(initial=1, where=np.isfinite(want)) if terms > 1 else 0
    np.testing.assert_allclose(got, want, rtol=2 * eps, atol=2 * eps * scale, err_msg=message)


def _eps(dtype: DType) -> float:
    return 2.0**-8 if dtype.name == "bfloat16" else float(np.finfo(dtype.numpy).eps)


SUMS = (
    "reduce", "reduce_all", "exclusive_prod", "squared_deviations", "feature_sum", "contract",
    "outer_sum", "scan_before", "scan_after",
)  # fmt: skip
ZERO_OF_EITHER_SIGN = ("maximum", "minimum", "feature_max", "feature_min")
"""Of two zeros, either is the larger."""


def _compare(op, node: Node, got: np.ndarray, want: np.ndarray, message: str) -> None:
    dtype = node.type.dtype
    selects = op.name in ZERO_OF_EITHER_SIGN or getattr(op, "kind", "") in ("max", "min")
    if not dtype.is_float or selects:
        np.testing.assert_array_equal(_comparable(got), _comparable(want), message)
    elif op.name in SUMS:
        _close(got, want, dtype, sum(DEGREES), message)
    elif _takes_any_bits(op) or not node.inputs or op.name in ("gather", "spread"):
        _same(got, want, message)
    else:
        _close(got, want, dtype, 1, message)


def check(sample: Sample, dtype: DType, program: Program, graph: Graph, edges: EdgeList, backend):
    """Hold a compiled program of one op to the oracle."""
    rng = np.random.default_rng(3)
    sizes = extents_of([EDGES], graph)
    count = max(len(sample.operands), 1)
    arrays = [
        _array(rng, sample.op, node, i % count, sizes[node.type.space])
        for i, node in enumerate(program.inputs)
    ]
    wanted = evaluate(program, arrays, {EDGES: edges})
    results = call(BACKENDS[backend](program), graph, arrays, extents=sizes)
    for node, got, want in zip(program.outputs, results, wanted, strict=True):
        _compare(sample.op, node, got, want, f"{sample.label} of {dtype} in {node.type.space}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_an_op_is_its_reference(name: str, backend: str, graph: Graph, edges: EdgeList) -> None:
    """At edges and at rows of one walk."""
    for sample in samples_of(name):
        places = (EDGES.edge, EDGES.dst) if sample.follows else (EDGES.edge,)
        for dtype in sample.dtypes:
            program = sample.program(dtype, places)
            check(sample, dtype, program, graph, edges, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [n for n in NAMES if samples_of(n)[0].follows])
def test_an_op_on_global_values(name: str, backend: str, graph: Graph, edges: EdgeList) -> None:
    for sample in samples_of(name)[:3]:
        dtype = sample.dtypes[-1]
        check(sample, dtype, sample.program(dtype, [GLOBAL]), graph, edges, backend)


@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_samples(name: str) -> None:
    samples = samples_of(name)
    assert samples
    assert all(sample.op.name == name and sample.dtypes for sample in samples)


@pytest.mark.parametrize("name", NAMES)
def test_equal_ops_hash_alike_and_copies_carry_no_hash(name: str) -> None:
    for sample in samples_of(name):
        op = sample.op
        twin = dataclasses.replace(op)
        assert twin == op
        assert hash(twin) == hash(op)
        assert set(copy.copy(op).__dict__) == set(op.attributes())
