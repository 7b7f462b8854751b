"""Kernels of any graph, width and reducer: values, gradients and thread counts, against torch."""

from functools import cache
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiga as tg
from tests.strategies import graphs
from tiga import knobs
from tiga.frontends.torch import unit
from tiga.relations.walk import HUB_DEGREE

WIDTHS = (1, 3, 8, 17, 64)
REDUCERS = {"sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "prod": tg.prod}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}

EDGES = {
    "weighted": lambda src, dst, edge: edge.w * src.x,
    "difference": lambda src, dst, edge: torch.relu(src.x - dst.x),
    "gated": lambda src, dst, edge: torch.tanh(src.x + edge.w) * dst.x,
}
"""Every operand is read by one at least; all of them have ties among dyadic operands."""

some = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@cache
def kernel(edge, reducer):
    """One instance per program, so that examples share what is compiled."""
    function = EDGES[edge]
    body = {
        "reducer": REDUCERS[reducer](),
        "edge": lambda self, src, dst, edge: function(src, dst, edge),
    }
    return type(f"{edge.title()}{reducer.title()}", (tg.MessagePassing,), body)()


class Fields:
    """Attributes in place of a kernel's namespaces."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def padded(messages, dst, num_dst, fill):
    """`[num_dst, most, F]`: the messages of each row, then `fill`."""
    rows = [messages[dst == row] for row in range(num_dst)]
    most = max((len(row) for row in rows), default=0)
    blank = messages.new_full((max(most, 1), *messages.shape[1:]), fill)
    return torch.stack([torch.cat([row, blank[len(row) :]]) for row in rows])


def plain(messages, dst, num_dst, reducer):
    """The reduction with ordinary torch ops, whose gradients torch derives."""
    if num_dst == 0:
        return messages.new_zeros(0, *messages.shape[1:]) + messages.sum() * 0
    count = torch.bincount(dst, minlength=num_dst)[:, None].to(messages.dtype)
    if reducer in ("sum", "mean"):
        total = torch.zeros(num_dst, *messages.shape[1:], dtype=messages.dtype)
        total = total.index_add(0, dst, messages)
        return total if reducer == "sum" else total / count.clamp(min=1)
    if reducer == "prod":
        return padded(messages, dst, num_dst, 1.0).prod(1)
    # amax, unlike max, shares the gradient among equal messages.
    if reducer == "max":
        return torch.where(count > 0, padded(messages, dst, num_dst, -torch.inf).amax(1), 0.0)
    return torch.where(count > 0, padded(messages, dst, num_dst, torch.inf).amin(1), 0.0)


def dyadic(generator, *shape):
    """Multiples of 1/4 from −2 to 2, exact zeros and equal values among them."""
    return torch.randint(-8, 9, shape, generator=generator, dtype=torch.float64) / 4


def operands(coo, width, seed):
    """x of the sources, x of the destinations and w of the edges, and a cotangent."""
    src, _, num_src, num_dst = coo
    generator = torch.Generator().manual_seed(seed)
    counts = ((num_src, width), (num_dst, width), (len(src), 1), (num_dst, width))
    return [dyadic(generator, *shape) for shape in counts]


def on_tiga(made, graph, x, y, w, cotangent):
    """The result and the gradients of the three fields, zeros where one is not read."""
    fields = [v.detach().clone().requires_grad_() for v in (x, y, w)]
    out = made(graph=graph, src={"x": fields[0]}, dst={"x": fields[1]}, edge={"w": fields[2]})
    gradients = torch.autograd.grad(out, fields, cotangent, allow_unused=True)
    return out, [
        torch.zeros_like(f) if g is None else g for f, g in zip(fields, gradients, strict=True)
    ]


def on_torch(edge, reducer, coo, x, y, w, cotangent):
    """The same with plain torch in float64."""
    src, dst, _, num_dst = torch.from_numpy(coo[0]), torch.from_numpy(coo[1]), *coo[2:]
    fields = [v.detach().clone().requires_grad_() for v in (x, y, w)]
    messages = EDGES[edge](Fields(x=fields[0][src]), Fields(x=fields[1][dst]), Fields(w=fields[2]))
    out = plain(messages, dst, num_dst, reducer)
    gradients = torch.autograd.grad(out, fields, cotangent, allow_unused=True)
    return out, [
        torch.zeros_like(f) if g is None else g for f, g in zip(fields, gradients, strict=True)
    ]


def near(got, want, dtype, scale):
    """Up to rounding of sums whose terms are up to `scale` large."""
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("reducer", REDUCERS)
@settings(some, max_examples=12)
@given(
    coo=graphs(max_nodes=20, max_edges=60),
    edge=st.sampled_from(sorted(EDGES)),
    seed=st.integers(0, 2**31),
)
def test_values_and_gradients_in_double_precision(reducer, width, coo, edge, seed):
    src, dst, num_src, num_dst = coo
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    arguments = operands(coo, width, seed)
    got, gradients = on_tiga(kernel(edge, reducer), graph, *arguments)
    want, wanted = on_torch(edge, reducer, coo, *arguments)
    scale = max(1.0, want.detach().abs().max().item() if want.numel() else 1.0)
    near(got, want, torch.float64, scale)
    for one, other in zip(gradients, wanted, strict=True):
        near(one, other, torch.float64, 64 * scale)


@pytest.mark.parametrize("edge", ["weighted", "difference"])
@pytest.mark.parametrize("reducer", ["sum", "max", "min"])
@settings(some, max_examples=8)
@given(
    coo=graphs(max_nodes=20, max_edges=60),
    width=st.sampled_from(WIDTHS),
    seed=st.integers(0, 2**31),
)
def test_single_precision_is_exact_where_nothing_rounds(edge, reducer, coo, width, seed):
    """Dyadic operands: the same winners and ties as in float64, and the same sums."""
    src, dst, num_src, num_dst = coo
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    arguments = operands(coo, width, seed)
    single = [argument.float() for argument in arguments]
    got, gradients = on_tiga(kernel(edge, reducer), graph, *single)
    want, wanted = on_torch(edge, reducer, coo, *arguments)
    assert got.dtype == torch.float32
    assert torch.equal(got.double(), want)
    for one, other in zip(gradients, wanted, strict=True):
        near(one, other, torch.float32, 1.0)


def hub(num_edges, num_nodes, seed):
    """Half of the edges come from node 0 and half, other ones, go to node 1."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    ends[0, ::2], ends[1, 1::2] = 0, 1
    return ends[0].numpy(), ends[1].numpy(), num_nodes, num_nodes


@pytest.mark.parametrize("width", [1, 17])
@pytest.mark.parametrize("reducer", REDUCERS)
def test_hubs_cut_into_chunks(reducer, width):
    coo = hub(2 * HUB_DEGREE + 1000, 50, seed=width)
    x, y, w, cotangent = operands(coo, width, seed=1)
    if reducer == "prod":
        # Signs, so that products of thousands stay finite; zeros in two rows, one and two of them.
        x, w = torch.sign(x + 0.125), torch.sign(w + 0.125)
        w[torch.nonzero(torch.from_numpy(coo[1]) == 1)[7]] = 0
        w[torch.nonzero(torch.from_numpy(coo[1]) == 2)[3:5]] = 0
    graph = tg.Graph.from_coo(*coo[:2], num_src=50, num_dst=50)
    assert [graph.degree_statistics(side).num_hubs for side in ("src", "dst")] == [1, 1]
    got, gradients = on_tiga(kernel("weighted", reducer), graph, x, y, w, cotangent)
    want, wanted = on_torch("weighted", reducer, coo, x, y, w, cotangent)
    near(got, want, torch.float64, HUB_DEGREE)
    for one, other in zip(gradients, wanted, strict=True):
        near(one, other, torch.float64, HUB_DEGREE)


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reducer", REDUCERS)
@settings(some, max_examples=6)
@given(
    coo=st.one_of(
        graphs(max_nodes=300, max_edges=3000),
        st.builds(hub, st.just(3 * HUB_DEGREE), st.just(64), st.integers(0, 2**31)),
    ),
    edge=st.sampled_from(sorted(EDGES)),
    width=st.sampled_from([1, 17]),
)
def test_threads_do_not_change_a_bit(reducer, dtype, coo, edge, width):
    src, dst, num_src, num_dst = coo
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    generator = torch.Generator().manual_seed(7)
    shapes = ((num_src, width), (num_dst, width), (len(src), 1), (num_dst, width))
    arguments = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    results = []
    for threads in (1, 2):
        with knobs.scope(num_threads=threads), mock.patch.object(unit, "PARALLEL_ELEMENTS", 0):
            out, gradients = on_tiga(kernel(edge, reducer), graph, *arguments)
        results.append([bits(value) for value in (out, *gradients)])
    assert results[0] == results[1]
