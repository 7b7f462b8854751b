"""Walks that run together: which do, and that results have the same bits as apart."""

import pytest
import torch

import tiga as tg
from tests.unit.test_buffers import NODE, both_sums
from tests.unit.test_form import plan_of, value
from tiga.backends.llvm.steps import JointStep
from tiga.compiler import compile_program
from tiga.ops import pointwise
from tiga.ops.message import reduce_all
from tiga.passes.buffers import place
from tiga.passes.pairs import joined
from tiga.passes.schedule_rows import ScheduleRows
from tiga.trace.program import Program
from tiga.types import bfloat16


def test_a_sum_of_both_ends_needs_no_array() -> None:
    into, out = both_sums(value("x", NODE, 4))
    plan = plan_of(pointwise.cast(pointwise.add(into, out), bfloat16))
    assert joined(plan) == {plan.steps[0]}
    placed = place(ScheduleRows()(plan), together=True)
    assert (dict(placed.hosts), placed.local) == ({}, {into})


def test_what_can_wait_in_an_output_does() -> None:
    into, out = both_sums(value("x", NODE, 4))
    assert not joined(plan_of(pointwise.add(into, out)))


def test_what_others_read_too_stays_an_array() -> None:
    into, out = both_sums(value("x", NODE, 4))
    assert not joined(plan_of(into, pointwise.cast(pointwise.add(into, out), bfloat16)))


def test_steps_with_totals_stay_apart() -> None:
    """Their pieces are those of their own tasks."""
    into, out = both_sums(value("x", NODE, 4))
    half = pointwise.cast(pointwise.add(into, out), bfloat16)
    assert not joined(plan_of(half, reduce_all(into)))


class Difference(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x)


def _gradient(reducer, graph, x, seed):
    kernel = Difference()
    kernel.reducer = reducer
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(kernel(graph=graph, ndata={"x": x}), x, seed.to(x.dtype))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reducer", [tg.sum, tg.mean, tg.max, tg.std, tg.prod, tg.logsumexp])
@pytest.mark.parametrize("width", [1, 3, 64, 200])
def test_together_and_apart_have_the_same_bits(monkeypatch, reducer, dtype, width) -> None:
    nodes, edges = 70, 900
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = tg.Graph.from_coo(*ends, num_src=nodes, num_dst=nodes)
    x = torch.rand(nodes, width, generator=generator).to(dtype)
    seed = torch.rand(nodes, width, generator=generator)
    together = _gradient(reducer(), graph, x, seed)
    monkeypatch.setattr(JointStep, "fits", lambda step, graphs: False)
    apart = _gradient(reducer(), graph, x, seed)
    assert torch.equal(together, apart)


def test_two_steps_become_one_kernel() -> None:
    into, out = both_sums(value("x", NODE, 4))
    total = pointwise.cast(pointwise.add(into, out), bfloat16)
    x = next(node for node in plan_of(total).inputs)
    compiled = compile_program(Program((x,), (total,)))
    (step,) = compiled.executable.joint
    assert isinstance(step, JointStep)
    assert compiled.executable.module_text().count("func.func") == 1
