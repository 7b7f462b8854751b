"""Calls of `MessagePassing` on torch tensors: results and gradients."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import tiga as tg
from tests.calls import GRAPH, SOURCES, TARGETS, field, kernel, summed
from tiga import errors
from tiga.reducers import Bound

# results


def test_edge_fields_follow_the_order_in_which_edges_were_given():
    x, w = field(4, 3).requires_grad_(), field(8, 1, seed=1).requires_grad_()
    y = kernel(lambda s, d, e: s.x * e.w)(graph=GRAPH, src={"x": x}, edge={"w": w})
    want = summed(x[SOURCES] * w)
    torch.testing.assert_close(y, want)
    cotangent = field(5, 3, seed=2)
    for one, other in zip(
        torch.autograd.grad(y, (x, w), cotangent),
        torch.autograd.grad(want, (x, w), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_ndata_serves_both_ends_and_node():
    graph = tg.Graph.from_coo(SOURCES, TARGETS, num_src=5, num_dst=5)
    x = field(5, 2).requires_grad_()
    y = kernel(lambda s, d, e: s.x - d.x, node=lambda d, a: a + d.x)(graph=graph, ndata={"x": x})
    want = summed(x[SOURCES] - x[TARGETS]) + x
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(*(torch.autograd.grad(v.square().sum(), x)[0] for v in (y, want)))


def test_tuples_dicts_and_different_reducers():
    x = field(4, 2)

    def edge(src, dst, edge):
        return {"both": (src.x, src.x * 2), "most": Bound(tg.max(), (src.x,)), "count": 1}

    out = kernel(edge, node=lambda d, a: {**a, "twice": a["both"][1] * 2})(
        graph=GRAPH, src={"x": x}
    )
    assert list(out) == ["both", "most", "count", "twice"]
    total = summed(x[SOURCES])
    torch.testing.assert_close(out["both"], (total, total * 2))
    torch.testing.assert_close(out["twice"], total * 4)
    assert out["count"].tolist() == [3, 3, 1, 0, 1]
    assert out["most"][3].tolist() == [0, 0]


def test_neighbour_softmax():
    score, value = field(8), field(4, 3)
    attend = kernel(lambda s, d, e: attend.reducer(e.score, s.v))
    attend.reducer = _softmax()
    score.requires_grad_()
    y = attend(graph=GRAPH, src={"v": value}, edge={"score": score})
    rows = []
    for row in range(5):
        at = row == TARGETS
        weights = score[at].softmax(0)
        rows.append((weights[:, None] * value[SOURCES[at]]).sum(0))
    want = torch.stack(rows)
    torch.testing.assert_close(y, want)
    cotangent = field(5, 3, seed=4)
    torch.testing.assert_close(*(torch.autograd.grad(v, score, cotangent)[0] for v in (y, want)))


def _softmax():
    from tiga.reducers import Softmax

    return Softmax()


def test_fields_that_are_not_contiguous_or_shared():
    base = field(3, 4)
    x = base.T.requires_grad_()
    same = x.expand(4, 3)
    y = kernel(lambda s, d, e: s.x * s.z)(graph=GRAPH, src={"x": x, "z": same})
    torch.testing.assert_close(y, summed(x[SOURCES] * same[SOURCES]))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(summed(x[SOURCES] ** 2).sum(), x)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_of_results_and_gradients(dtype):
    x, w = field(4, 3, dtype=dtype).requires_grad_(), field(8, 1, dtype=dtype, seed=1)
    y = kernel(lambda s, d, e: (s.x * e.w).relu())(graph=GRAPH, src={"x": x}, edge={"w": w})
    assert y.dtype == dtype
    want = summed((x[SOURCES] * w).relu().double())
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 1e-6)
    torch.testing.assert_close(y.double(), want, rtol=tolerance, atol=tolerance)
    assert torch.autograd.grad(y.sum(), x)[0].dtype == dtype


def test_unused_fields_cost_nothing_and_have_no_gradient():
    x, unused = field(4, 2).requires_grad_(), field(4, 2).requires_grad_()
    y = kernel(lambda s, d, e: s.x)(graph=GRAPH, src={"x": x, "unused": unused})
    assert torch.autograd.grad(y.sum(), (x, unused), allow_unused=True)[1] is None


def test_no_grad_and_inference_mode():
    x = field(4, 2).requires_grad_()
    run = kernel(lambda s, d, e: s.x.exp())
    with torch.no_grad():
        assert not run(graph=GRAPH, src={"x": x}).requires_grad
    with torch.inference_mode():
        run(graph=GRAPH, src={"x": x})
    assert run(graph=GRAPH, src={"x": x}).requires_grad
    assert run.cache_info.variants == 1


def test_what_a_call_in_inference_mode_keeps_serves_training():
    graph = tg.Graph.from_coo(torch.tensor([0, 1, 2]), torch.tensor([2, 1, 0]), num_dst=3)
    x, w = field(3, 2).requires_grad_(), field(3, 1).requires_grad_()
    run = kernel(lambda s, d, e: s.x * e.w.sin())
    with torch.inference_mode():
        run(graph=graph, src={"x": x}, edge={"w": w})
    out = run(graph=graph, src={"x": x}, edge={"w": w})
    torch.testing.assert_close(out, (x * w.sin()).flip(0))
    (dw,) = torch.autograd.grad(out.sum(), w, create_graph=True)
    torch.testing.assert_close(dw, x.sum(1, keepdim=True) * w.cos())


def test_oracle_reference_and_inspection():
    x = field(4, 2)
    run = kernel(lambda s, d, e: s.x.exp())
    y = run(graph=GRAPH, src={"x": x})
    torch.testing.assert_close(run.reference(graph=GRAPH, src={"x": x}), y)
    assert "program 0" in run.explain()
    assert run.diagnostics == ()
    assert run.cache_info[:3] == (1, 1, 1)


# modules


class Layer(tg.MessagePassing, torch.nn.Module):
    """A learned layer in the documented form."""

    reducer = tg.mean()

    def __init__(self):
        super().__init__()
        self.message = torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.SiLU(), torch.nn.Linear(6, 2)
        )
        self.logits = torch.nn.Parameter(torch.zeros(2))

    def edge(self, src, dst, edge):
        h = self.message(torch.cat([src.x, dst.x], -1))
        return h * torch.softmax(self.logits, 0)

    def node(self, dst, aggregate):
        return dst.x + aggregate


def eager(layer, x, z):
    h = layer.message(torch.cat([x[SOURCES], z[TARGETS]], -1)) * torch.softmax(layer.logits, 0)
    degree = torch.bincount(TARGETS, minlength=5).clamp_min(1)[:, None]
    return z + summed(h) / degree


def test_a_learned_layer_is_a_module():
    layer = Layer().double()
    assert len(list(layer.parameters())) == 7
    assert "logits" in layer.state_dict()
    calls = []
    layer.register_forward_hook(lambda module, args, out: calls.append(out))
    x, z = field(4, 2).requires_grad_(), field(5, 2, seed=1)
    y = layer(graph=GRAPH, src={"x": x}, dst={"x": z})
    assert calls[0] is y
    want = eager(layer, x, z)
    torch.testing.assert_close(y, want)
    inputs = [x, *layer.parameters()]
    cotangent = field(5, 2, seed=3)
    for one, other in zip(
        torch.autograd.grad(y, inputs, cotangent),
        torch.autograd.grad(want, inputs, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bases", [(tg.MessagePassing,), (tg.MessagePassing, torch.nn.Module)])
def test_a_forward_of_its_own_takes_what_it_says(bases):
    def forward(self, graph, x, twice=False):
        out = tg.MessagePassing.forward(self, graph=graph, ndata={"x": x})
        return 2.0 * out if twice else out

    body = {"edge": lambda self, src, dst, edge: src.x, "forward": forward}
    layer = type("Layer", bases, body)()
    graph = tg.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([1, 1]), num_src=2, num_dst=2)
    x = torch.tensor([1.0, 2.0])
    assert layer(graph, x).tolist() == [0.0, 3.0]
    assert layer(graph, x, twice=True).tolist() == [0.0, 6.0]


def test_a_learned_layer_trains():
    torch.manual_seed(0)
    layer = Layer()
    x, z = field(4, 2, dtype=torch.float32), field(5, 2, dtype=torch.float32, seed=1)
    target = field(5, 2, dtype=torch.float32, seed=2)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (layer(graph=GRAPH, src={"x": x}, dst={"x": z}) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert layer.cache_info.variants == 1


def test_two_layers_of_one_class_share_their_program():
    first, second = Layer(), Layer()
    x, z = field(4, 2, dtype=torch.float32), field(5, 2, dtype=torch.float32)
    for layer in (first, second):
        torch.testing.assert_close(
            layer(graph=GRAPH, src={"x": x}, dst={"x": z}), eager(layer, x, z)
        )
    units = [vars(layer)["_tiga_state"].all()[0].unit for layer in (first, second)]
    assert units[0] is units[1]


# derivatives

EDGES = {
    "product": lambda s, d, e: s.x * d.z * e.w,
    "distance": lambda s, d, e: (s.x - d.z).norm(dim=-1, keepdim=True) * e.w,
    "gate": lambda s, d, e: torch.sigmoid(s.x + d.z) * torch.tanh(e.w * s.x),
}
REDUCERS = [tg.sum(), tg.mean(), tg.max(), tg.min(), tg.prod()]


@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", EDGES)
def test_first_and_second_derivatives(name, reducer):
    run = kernel(EDGES[name], reducer)
    inputs = [
        field(4, 2).requires_grad_(),
        field(5, 2, seed=1).requires_grad_(),
        field(8, 1, seed=2).requires_grad_(),
    ]

    def call(x, z, w):
        return run(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})

    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs)


def test_a_force_from_an_energy():
    x = field(5, 3).requires_grad_()
    graph = tg.Graph.from_coo(SOURCES, TARGETS, num_src=5, num_dst=5)
    run = kernel(lambda s, d, e: (s.x - d.x).square().sum(-1).exp())
    energy = run(graph=graph, ndata={"x": x}).sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    (second,) = torch.autograd.grad(force.square().sum(), x)

    def plain(v):
        return (v[SOURCES] - v[TARGETS]).square().sum(-1).exp().sum()

    (want,) = torch.autograd.grad(plain(x), x, create_graph=True)
    torch.testing.assert_close(force, want)
    torch.testing.assert_close(second, torch.autograd.grad(want.square().sum(), x)[0])


def test_topology_changed_between_forward_and_backward():
    src = SOURCES.clone()
    graph = tg.Graph.from_coo(src, TARGETS, num_src=4, num_dst=5)
    x = field(4, 2).requires_grad_()
    y = kernel(lambda s, d, e: s.x.square())(graph=graph, src={"x": x})
    src[0] = 1
    with pytest.raises(RuntimeError, match="modified in place"):
        y.sum().backward()


def test_a_field_changed_between_forward_and_backward():
    x = field(4, 2).requires_grad_()
    z = x * 1
    y = kernel(lambda s, d, e: s.x.square())(graph=GRAPH, src={"x": z})
    z.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


# masks


@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_masked_edges_contribute_the_identity(reducer):
    keep = torch.tensor([True, False, True, True, True, False, False, True])
    masked = kernel(lambda s, d, e: tg.mask(s.x, e.keep), reducer)
    dropped = kernel(lambda s, d, e: s.x, reducer)
    x = field(4, 2).requires_grad_()
    y = masked(graph=GRAPH, src={"x": x}, edge={"keep": keep})
    rest = tg.Graph.from_coo(SOURCES[keep], TARGETS[keep], num_src=4, num_dst=5)
    want = dropped(graph=rest, src={"x": x})
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(*(torch.autograd.grad(v.square().sum(), x)[0] for v in (y, want)))


def test_masked_edges_have_zero_gradients_where_the_derivative_is_infinite():
    w = torch.nn.Parameter(torch.tensor([[2.0, 1.0], [0.5, 1.0]], dtype=torch.float64))

    def edge(src, dst, edge):
        return tg.mask(((src.x @ w) * edge.scale).sqrt(), edge.keep)

    x = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64).requires_grad_()
    scale = torch.tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64).requires_grad_()
    keep = torch.tensor([True, False, False])
    graph = tg.Graph.from_coo([0, 1, 0], [0, 0, 0], num_src=2, num_dst=1)
    y = kernel(edge)(graph=graph, src={"x": x}, edge={"scale": scale, "keep": keep})
    grads = torch.autograd.grad(y.sum(), (x, scale, w), create_graph=True)
    for gradient in grads:
        assert torch.isfinite(gradient).all()
    assert grads[0][1].tolist() == [0, 0]
    assert grads[1][1:].tolist() == [[0], [0]]
    second = torch.autograd.grad(sum(g.square().sum() for g in grads), (x, scale, w))
    for gradient in second:
        assert torch.isfinite(gradient).all()


def test_a_mask_of_another_dtype_is_refused():
    with pytest.raises(errors.InvalidType, match="must hold bools"):
        kernel(lambda s, d, e: tg.mask(s.x, s.x))(graph=GRAPH, src={"x": field(4)})


def test_every_level_of_ir_and_the_schedules():
    run = kernel(lambda s, d, e: s.x.exp(), node=lambda d, a: a * 2)
    with pytest.raises(errors.InvalidValue, match="domain, iter, kernel, llvm"):
        run.ir("other")  # before the first call as well
    x = field(4, 2).requires_grad_()
    torch.autograd.grad(run(graph=GRAPH, src={"x": x}).sum(), x)
    for level in ("domain", "iter", "kernel", "llvm"):
        assert run.ir(level).count("// program 0") == 2
    assert "define" in run.code()
    assert run.schedules
    with pytest.raises(errors.InvalidValue, match="domain, iter, kernel, llvm"):
        run.ir("other")
