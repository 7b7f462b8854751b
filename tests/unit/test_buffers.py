"""Whose memory values between steps take: lifetimes, and what may be written in place."""

import numpy as np
import torch

import tiga as tg
from tests.unit.test_form import DST, EDGES, SRC, plan_of, reduce, value
from tiga.ops import functions, pointwise
from tiga.ops.message import gather as gather_on
from tiga.ops.message import reduce as reduce_on
from tiga.passes.buffers import place
from tiga.passes.schedule_rows import ScheduleRows
from tiga.relations.walk import HUB_DEGREE
from tiga.trace.node import Node
from tiga.types import Relation, Space

NODE = Space("node", "node")
LOOP = Relation("loop", NODE, NODE)


def hosts_of(*outputs: Node, unneeded: tuple[Node, ...] = ()) -> dict[Node, Node]:
    return dict(place(ScheduleRows()(plan_of(*outputs)), unneeded).hosts)


def message(x: Node) -> Node:
    ends = (gather_on(LOOP, "src", x), gather_on(LOOP, "dst", x))
    return functions.exp(pointwise.mul(*ends))


def both_sums(x: Node) -> tuple[Node, Node]:
    m = message(x)
    return reduce_on(LOOP, "dst", "sum", m), reduce_on(LOOP, "src", "sum", m)


def test_a_sum_waits_in_the_memory_of_the_output_that_it_is_added_to() -> None:
    into, out = both_sums(value("x", NODE, 4))
    total = pointwise.add(into, out)
    assert hosts_of(total) == {into: total}


def test_what_is_read_at_other_ends_is_not_written_over_by_the_step_that_reads_it() -> None:
    x = value("x", SRC, 4)
    first = reduce("dst", gather_on(EDGES, "src", x))
    back = reduce("src", gather_on(EDGES, "dst", functions.exp(first)))
    (stored,) = hosts_of(back)
    assert stored.type.space == DST
    assert hosts_of(back)[stored] is stored


def test_other_widths_take_no_place_of_one_another() -> None:
    into, out = both_sums(value("x", NODE, 4))
    half = pointwise.cast(pointwise.add(into, out), tg.types.bfloat16)
    assert hosts_of(half) == {into: into}


def test_inputs_give_their_memory_only_if_told_to() -> None:
    x = value("x", NODE, 4)
    old = value("old", NODE, 4)
    into, out = both_sums(x)
    wide = pointwise.add(pointwise.mul(into, old), out)
    half = pointwise.cast(wide, tg.types.bfloat16)
    (stored,) = hosts_of(half)
    assert hosts_of(half)[stored] is stored
    assert hosts_of(half, unneeded=(old,))[stored] is old


def test_in_place_sums_of_split_rows_are_right() -> None:
    """A hub's row is finished last: until then its place holds what its chunks read."""

    class Difference(tg.MessagePassing):
        reducer = tg.std()

        def edge(self, src, dst, edge):
            return torch.relu(src.x - dst.x)

    generator = np.random.default_rng(0)
    nodes, edges = 60, 3 * HUB_DEGREE
    src, dst = generator.integers(0, nodes, (2, edges))
    dst[: HUB_DEGREE + 100] = 7
    src[-HUB_DEGREE - 100 :] = 9
    graph = tg.Graph.from_coo(*map(torch.from_numpy, (src, dst)), num_src=nodes, num_dst=nodes)
    x = torch.rand(nodes, 8, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    kernel = Difference()
    seed = torch.rand(nodes, 8)
    (found,) = torch.autograd.grad(kernel(graph=graph, ndata={"x": x}), x, seed)
    (expected,) = torch.autograd.grad(kernel(graph=graph, ndata={"x": wide}), wide, seed.double())
    assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)
    again = _plain_std(wide, src, dst, nodes)
    (oracle,) = torch.autograd.grad(again, wide, seed.double())
    assert torch.allclose(expected, oracle)


def _plain_std(x, src, dst, nodes):
    m = torch.relu(x[src] - x[dst])
    at = torch.from_numpy(dst)
    zeros = torch.zeros(nodes, x.shape[1], dtype=x.dtype)
    count = torch.bincount(at, minlength=nodes).clamp(min=1)[:, None]
    mean = zeros.index_add(0, at, m) / count
    return (zeros.index_add(0, at, (m - mean[at]) ** 2) / count).sqrt()
