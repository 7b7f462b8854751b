"""Exact recomputation: what is computed again in another walk has the same bits.

The gradient of max compares recomputed messages with the stored winner, so one bit of difference
loses a winner. Here winners are counted: every message gets a zero from its edge, one from its
source and one from its destination, whose gradients count winners in walks over destinations and
over sources.
"""

import pytest
import torch

import tiga as tg
from tiga.reducers import Bound
from tiga.relations.walk import HUB_DEGREE

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = [F32, BF16, F16]
REDUCERS = {"max": tg.max, "min": tg.min}


def feature_norm(x):
    return (x * x).sum(-1, keepdim=True).sqrt()


def linear(layer, x):
    return torch.nn.functional.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


ELEMENTWISE = {
    "fused multiply-add": lambda m, s, d, e: s.x * d.x + e.w * s.x - d.x,
    "exp": lambda m, s, d, e: torch.exp(s.x) * d.x,
    "exp of both": lambda m, s, d, e: torch.exp(s.x * d.x * 0.5),
    "tanh": lambda m, s, d, e: torch.tanh(s.x - d.x) + e.w,
    "sigmoid and log": lambda m, s, d, e: torch.sigmoid(s.x * e.w) * torch.log(d.x.abs() + 1),
    "gelu, silu, softplus": lambda m, s, d, e: (
        torch.nn.functional.gelu(s.x)
        + torch.nn.functional.silu(d.x * s.x)
        - torch.nn.functional.softplus(e.w - d.x)
    ),
    "sin and pow": lambda m, s, d, e: torch.sin(s.x * 3) * (d.x.abs() + 0.5) ** 1.7,
    "division": lambda m, s, d, e: (s.x - d.x) / (d.x * d.x + 1.3) / (e.w + 3),
    "reciprocal root": lambda m, s, d, e: s.x * torch.rsqrt(d.x * d.x + s.x * s.x + 0.1),
    "casts down": lambda m, s, d, e: ((s.x - d.x).to(BF16) * e.w.to(BF16)).to(s.x.dtype) * s.x,
    "casts up": lambda m, s, d, e: (torch.exp(s.x.double()) * d.x.float()).to(s.x.dtype),
    "hoisted": lambda m, s, d, e: torch.tanh(torch.exp(s.x) * 0.3) * torch.sin(d.x * 2.1 + 1),
}
"""Functions of (module, src, dst, edge) that work feature by feature, of any width."""

ACROSS = {
    "feature sum": lambda m, s, d, e: (s.x * d.x).sum(-1, keepdim=True) * s.x + e.w,
    "feature mean, max": lambda m, s, d, e: (
        s.x * (s.x * d.x).mean(-1, keepdim=True) - s.x.amax(-1)[:, None]
    ),
    "softmax": lambda m, s, d, e: torch.softmax(s.x * d.x, -1) + e.w,
    "norm": lambda m, s, d, e: (s.x - d.x) / (feature_norm(s.x - d.x) + 0.1),
    "layer norm": lambda m, s, d, e: torch.nn.functional.layer_norm(s.x - d.x, s.x.shape[-1:]),
    "Linear": lambda m, s, d, e: linear(m.square, torch.relu(s.x - d.x)),
    "MLP": lambda m, s, d, e: linear(m.second, torch.relu(linear(m.square, torch.tanh(s.x * d.x)))),
    "Linear of a source": lambda m, s, d, e: torch.relu(linear(m.square, s.x)) * d.x,
    "Linear of a concatenation": lambda m, s, d, e: linear(
        m.wide, torch.cat([s.x, d.x, e.w.expand(-1, s.x.shape[-1])], -1)
    ),
}
"""Functions that mix features: sums in a fixed order, products with small matrices."""


class Select(tg.MessagePassing, torch.nn.Module):
    """Max or min of a function of the operands, and three zeros that count."""

    def __init__(self, function, reducer, width):
        super().__init__()
        self.function, self.reducer = function, reducer
        torch.manual_seed(3)
        self.square = torch.nn.Linear(width, width)
        self.second = torch.nn.Linear(width, width)
        self.wide = torch.nn.Linear(3 * width, width)

    def edge(self, src, dst, edge):
        return self.function(self, src, dst, edge) + edge.zero + src.zero + dst.zero


class Fields:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def ends(num_src, num_dst, num_edges, seed=0):
    """No two edges alike; the last destinations and sources have no edge."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randperm((num_src - 3) * (num_dst - 3), generator=generator)[:num_edges]
    return pairs % (num_src - 3), pairs // (num_src - 3), num_src, num_dst


COO = ends(61, 47, 2000)


def fields(coo, width, dtype):
    src, _, num_src, num_dst = coo
    generator = torch.Generator().manual_seed(11)
    values = [
        torch.randn(*shape, generator=generator).to(dtype)
        for shape in ((num_src, width), (num_dst, width), (len(src), 1))
    ]
    extents = (len(src), num_src, num_dst)
    return values, [torch.zeros(n, width, dtype=dtype, requires_grad=True) for n in extents]


def select(kernel, coo, values, zeros):
    x, y, w = values
    edge, source, destination = zeros
    src, dst, num_src, num_dst = coo
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    return kernel(
        graph=graph,
        src={"x": x, "zero": source},
        dst={"x": y, "zero": destination},
        edge={"w": w, "zero": edge},
    )


def per_node(values, ids, count):
    """The sum in float64 over the edges of every node."""
    total = torch.zeros(count, values.shape[1], dtype=torch.float64)
    return total.index_add(0, ids, values.double())


def same(gradient, wanted):
    """Up to the rounding of shares to the dtype and of their sum: one winner of 40 shows."""
    tolerance = max(2 * torch.finfo(gradient.dtype).eps, 1e-5)
    torch.testing.assert_close(gradient.double(), wanted, rtol=tolerance, atol=0)


def check_winners(function, reducer, coo, width, dtype):
    src, dst, num_src, num_dst = coo
    values, zeros = fields(coo, width, dtype)
    kernel = Select(function, REDUCERS[reducer](), width)
    out = select(kernel, coo, values, zeros)
    edge, source, destination = torch.autograd.grad(out, zeros, torch.ones_like(out))
    assert not kernel.diagnostics

    # Every row that has edges has a winner, and winners of a row share its gradient evenly.
    winners = per_node(edge != 0, dst, num_dst)
    occupied = (torch.bincount(dst, minlength=num_dst) > 0)[:, None]
    assert torch.equal(winners > 0, occupied.expand_as(winners))
    assert torch.equal(edge, torch.where(edge != 0, 1 / winners[dst], 0).to(dtype))
    # Walks over destinations and over sources found the same winners.
    wanted = per_node(torch.where(edge != 0, 1 / winners[dst], 0), src, num_src)
    same(source, wanted)
    same(destination, (winners > 0).double())
    if winners.max() <= 1:
        assert torch.equal(source, wanted.to(dtype))
        assert source.double().sum() == destination.double().sum() == occupied.sum() * width
    # They are winners by torch's own reckoning, up to the rounding of its functions.
    with torch.no_grad():
        message = function(
            kernel, Fields(x=values[0][src]), Fields(x=values[1][dst]), Fields(w=values[2])
        ).double()
    slack = 32 * torch.finfo(dtype).eps * message.abs().max().clamp(min=1)
    assert ((message - out[dst].double()).abs()[edge != 0] <= slack).all()
    return int(winners.max())


@pytest.mark.parametrize(("width", "dtype"), [(1, F32), (17, F32), (17, BF16)])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_feature_by_feature(name, width, dtype):
    reducer = "max" if width == 1 else "min"
    most = check_winners(ELEMENTWISE[name], reducer, COO, width, dtype)
    # Where nothing ties, the count above was exact.
    assert most == 1 or dtype != F32 or name == "casts down"


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("name", ACROSS)
def test_functions_across_features(name, dtype):
    check_winners(ACROSS[name], "max", COO, 9, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 17, 64, 200])
@pytest.mark.parametrize("name", [*ELEMENTWISE, *ACROSS])
def test_every_width_and_dtype(name, width, dtype):
    """Edges across lanes, values of one and several registers, and windows of features."""
    check_winners((ELEMENTWISE | ACROSS)[name], "max", COO, width, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp of both", "feature sum"])
def test_ties_are_shared_alike_in_both_walks(name, dtype):
    """Every source has one edge, so each finds the very share that its edge has."""
    function = (ELEMENTWISE | ACROSS)[name]
    count, width = 600, 5
    generator = torch.Generator().manual_seed(5)
    coo = (torch.randperm(count, generator=generator), torch.arange(count) % 41, count, 43)
    values, zeros = fields(coo, width, dtype)
    values[0], values[2] = values[0].round() / 2, values[2].round()
    out = select(Select(function, tg.max(), width), coo, values, zeros)
    edge, source, _ = torch.autograd.grad(out, zeros, torch.ones_like(out))
    assert torch.equal(source[coo[0]], edge)
    winners = per_node(edge != 0, coo[1], 43)
    assert winners.max() > 2
    assert torch.equal(edge, torch.where(edge != 0, 1 / winners[coo[1]], 0).to(dtype))


@pytest.mark.parametrize(("width", "dtype"), [(1, F32), (17, BF16)])
def test_hubs(width, dtype):
    """Rows that are cut into chunks, in both orientations."""
    count = 2 * HUB_DEGREE + 900
    generator = torch.Generator().manual_seed(2)
    src = torch.randint(0, 5000, (count,), generator=generator)
    dst = torch.randint(0, 5000, (count,), generator=generator)
    src[::2], dst[1::2] = 0, 1
    check_winners(ELEMENTWISE["tanh"], "max", (src, dst, 5000, 5000), width, dtype)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", ["tanh", "softmax", "Linear"])
def test_gradients_of_gradients_count_the_same_winners(name, dtype):
    """The derivative of a gradient by its cotangent walks once more."""
    function = (ELEMENTWISE | ACROSS)[name]
    _, dst, _, num_dst = COO
    values, zeros = fields(COO, 5, dtype)
    out = select(Select(function, tg.max(), 5), COO, values, zeros)
    cotangent = torch.ones_like(out).requires_grad_()
    first = torch.autograd.grad(out, zeros, cotangent, create_graph=True)
    occupied = (torch.bincount(dst, minlength=num_dst) > 0)[:, None].expand(-1, 5)
    for gradient in first:
        (second,) = torch.autograd.grad(gradient.sum(), cotangent, retain_graph=True)
        same(second, occupied.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_winners_beside_other_reductions_of_the_walk(dtype):
    """Sum, mean, max and min share one walk, and each its recomputed message."""

    class Four(tg.MessagePassing):
        def edge(self, src, dst, edge):
            message = torch.tanh(src.x * dst.x) * torch.exp(edge.w)
            return {
                name: Bound(reducer(), (message + edge[f"of_{name}"] + src[f"of_{name}"],))
                for name, reducer in (
                    ("sum", tg.sum), ("mean", tg.mean), ("max", tg.max), ("min", tg.min)
                )
            }  # fmt: skip

    src, dst, num_src, num_dst = COO
    (x, y, w), _ = fields(COO, 6, dtype)
    names = ("sum", "mean", "max", "min")
    zeros = [torch.zeros(n, 6, dtype=dtype, requires_grad=True) for n in (len(src), num_src) * 4]
    edges, sources = (
        dict(zip(names, zeros[::2], strict=True)),
        dict(zip(names, zeros[1::2], strict=True)),
    )
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    out = Four()(
        graph=graph,
        src={"x": x, **{f"of_{name}": value for name, value in sources.items()}},
        dst={"x": y},
        edge={"w": w, **{f"of_{name}": value for name, value in edges.items()}},
    )
    total = sum(out[name].sum() for name in names)
    occupied = int((torch.bincount(dst, minlength=num_dst) > 0).sum())
    for name in ("max", "min"):
        edge, source = torch.autograd.grad(total, (edges[name], sources[name]), retain_graph=True)
        winners = per_node(edge != 0, dst, num_dst)
        assert int((winners > 0).sum()) == occupied * 6
        wanted = per_node(torch.where(edge != 0, 1 / winners[dst], 0), src, num_src)
        torch.testing.assert_close(source.double(), wanted, rtol=4 * torch.finfo(dtype).eps, atol=0)


NEGATIVE_ZEROS = {
    "one axis": lambda s, d, e: s.x.sum(-1),
    "two axes": lambda s, d, e: s.x[:, :, None].sum((1, 2)),
    "kept": lambda s, d, e: s.x.sum(-1, keepdim=True)[:, 0],
    "mean": lambda s, d, e: s.x.sum(-1) / s.x.shape[1],
}


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("name", NEGATIVE_ZEROS)
def test_a_sum_of_negative_zeros_is_zero(name, width, dtype):
    """As torch has it: atan2 of a zero vector's square is 0, not pi."""
    summed = NEGATIVE_ZEROS[name]
    copysign = torch.copysign

    class Signs(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return copysign(torch.ones((), dtype=dtype), summed(src, dst, edge))

    graph = tg.Graph.from_coo([0, 1, 1, 2, 0], [1, 0, 1, 1, 1], num_src=3, num_dst=2)
    x = torch.full((3, width), -0.0, dtype=dtype)
    expected = torch.tensor([1.0, 4.0], dtype=dtype)
    assert torch.equal(Signs()(graph=graph, src={"x": x}), expected)
    assert torch.equal(torch.as_tensor(Signs().reference(graph=graph, src={"x": x})), expected)
