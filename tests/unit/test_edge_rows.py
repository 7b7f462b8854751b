"""Programs that name no end of their edges: the edges are rows, and no graph is walked."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, TARGETS, field, kernel
from tests.compiled import call
from tests.unit.test_form import EDGE, EDGES, plan_of, rows, steps_of, value
from tests.unit.test_ir_round_trip import RULES
from tiga import knobs
from tiga.backends.reference import EdgeList, evaluate
from tiga.compiler import compile_program
from tiga.ops import feature, functions, message, pointwise
from tiga.ops.contract import contract
from tiga.relations import Graph
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL

COUNT = 23
LOOPS = EdgeList(np.zeros(COUNT, int), np.zeros(COUNT, int), 1, 1)


def product(m: Node, scale: Node) -> list[Node]:
    return [pointwise.mul(m, message.spread(scale, EDGE))]


def values_and_their_total(m: Node, scale: Node) -> list[Node]:
    scaled = functions.exp(pointwise.mul(m, message.spread(scale, EDGE)))
    return [scaled, message.reduce_all(scaled)]


def total_of_a_share(m: Node, scale: Node) -> list[Node]:
    """A value per edge that reads a total of them all."""
    total = message.reduce_all(functions.exp(m))
    return [pointwise.div(functions.exp(m), message.spread(total, EDGE)), scale]


def mixed_features(m: Node, scale: Node) -> list[Node]:
    return [feature.feature_sum(m, 0) if m.type.shape else functions.tanh(m)]


FORMS = (product, values_and_their_total, total_of_a_share, mixed_features)


def compare(program: Program) -> None:
    """The kernels against the oracle, with every form of the plan as text."""
    rng = np.random.default_rng(3)
    arrays = []
    for node in program.inputs:
        lead = () if node.type.space == GLOBAL else (COUNT,)
        arrays.append(rng.uniform(-1, 1, (*lead, *node.type.shape)).astype(np.float32))
    with knobs.scope(verify=2):
        compiled = compile_program(program)
    graph = Graph.from_coo([0], [0])
    got = call(compiled, graph, arrays, extents={EDGE: COUNT})
    for found, want in zip(got, evaluate(program, arrays, {EDGES: LOOPS}), strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(), (3,)], ids=["scalars", "vectors"])
@pytest.mark.parametrize("form", FORMS)
def test_edges_are_rows(form: Callable[..., list[Node]], shape: tuple[int, ...]) -> None:
    m, scale = value("m", EDGE, *shape), value("scale", GLOBAL, *shape)
    program = Program((m, scale), tuple(form(m, scale)))
    assert set(steps_of(plan_of(*program.outputs))) == {rows(EDGE)}
    compare(program)
    trained = training(program, (0, 1), RULES)
    compare(trained)
    compare(gradient(trained, (0, 1), range(len(program.outputs)), RULES).program)


def test_products_with_matrices_are_those_of_rows() -> None:
    m, matrix = value("m", EDGE, 3), value("matrix", GLOBAL, 3, 2)
    program = Program((m, matrix), (functions.tanh(contract(m, matrix)),))
    compare(program)
    compare(gradient(training(program, (0, 1), RULES), (0, 1), (0,), RULES).program)


REDUCERS = {
    "sum": tg.sum(), "mean": tg.mean(), "max": tg.max(), "min": tg.min(), "prod": tg.prod(),
    "std": tg.std(), "logsumexp": tg.logsumexp(), "softmax": tg.softmax(),
}  # fmt: skip


def rows_of(name: str, score: torch.Tensor, message: torch.Tensor) -> torch.Tensor:
    """The reduced messages by torch, row by row."""
    found = []
    for row in range(5):
        at = (row == TARGETS).nonzero()[:, 0]
        m = message[at]
        if not len(at):
            found.append(torch.zeros(message.shape[1:], dtype=message.dtype))
            continue
        weight = score[at].softmax(0).reshape(-1, *[1] * (m.ndim - 1))
        found.append({
            "sum": lambda m: m.sum(0), "mean": lambda m: m.mean(0), "max": lambda m: m.amax(0),
            "min": lambda m: m.amin(0), "prod": lambda m: m.prod(0),
            "std": lambda m: m.std(0, correction=0), "logsumexp": lambda m: m.logsumexp(0),
            "softmax": lambda m, weight=weight: (weight * m).sum(0),
        }[name](m))  # fmt: skip
    return torch.stack(found)


@pytest.mark.parametrize("name", sorted(REDUCERS))
@pytest.mark.parametrize("shape", [(8,), (8, 3)], ids=["scalars", "vectors"])
def test_kernels_of_edge_fields_alone_fuse_with_gradients(
    name: str, shape: tuple[int, ...]
) -> None:
    scale = field(1, *shape[1:], seed=7)[0].requires_grad_()

    def edge(self, src, dst, edge):
        message = (edge.m * self.scale).exp()
        return self.reducer(edge.s, message) if name == "softmax" else message

    layer = kernel(None, REDUCERS[name], strict=True)
    type(layer).edge = edge
    layer.scale = scale
    m, s = field(*shape).requires_grad_(), field(8, seed=1).requires_grad_()
    got = layer(graph=GRAPH, edge={"m": m, "s": s})
    want = rows_of(name, s, (m * scale).exp())
    live = torch.arange(5) != 3 if name in ("logsumexp", "prod", "max", "min") else slice(None)
    torch.testing.assert_close(got[live], want[live])
    for a, b in zip(
        torch.autograd.grad((got[live] ** 2).sum(), (m, s, scale), allow_unused=True),
        torch.autograd.grad((want[live] ** 2).sum(), (m, s, scale), allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(*(torch.zeros(()) if g is None else g for g in (a, b)))
