"""What cannot be fused runs through torch in destination blocks."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

import tiga as tg
from tiga import errors, knobs
from tiga.frontends.torch.blocks import parts
from tiga.frontends.torch.blocks.parts import BlockFields, measure
from tiga.frontends.torch.unit import unit_of

SOURCES = torch.arange(200) % 17
TARGETS = torch.cat([torch.zeros(90, dtype=torch.long), torch.arange(110) % 23])
GRAPH = tg.Graph.from_coo(SOURCES, TARGETS, num_src=17, num_dst=25)
REDUCERS = [tg.sum(), tg.mean(), tg.max(), tg.min(), tg.prod()]


class Bessel(tg.MessagePassing, torch.nn.Module):
    """`i0` has no op in the trace."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, -0.25], dtype=torch.float64))

    def message(self, x, z, w):
        return torch.special.i0(x * self.scale) * z * w

    def edge(self, src, dst, edge):
        return self.message(src.x, dst.z, edge.w)

    def node(self, dst, aggregate):
        return aggregate + dst.z


def inputs():
    generator = torch.Generator().manual_seed(0)

    def field(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    return field(17, 2), field(25, 2), field(200, 1)


def reduced(reducer, messages):
    """The reducer by a kernel that is fused, on the same messages."""

    class Plain(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return edge.m

    plain = Plain()
    plain.reducer = reducer
    return plain(graph=GRAPH, edge={"m": messages})


@pytest.mark.parametrize("bound", [2**30, 20_000, 1_500])
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_blocks_give_what_one_piece_gives(reducer, bound):
    kernel = Bessel()
    kernel.reducer = reducer
    x, z, w = inputs()
    with knobs.scope(memory_bound=bound):
        y = kernel(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
        want = reduced(reducer, kernel.message(x[SOURCES], z[TARGETS], w)) + z
        torch.testing.assert_close(y, want)
        wrt = (x, z, w, kernel.scale)
        cotangent = torch.linspace(-1, 1, 50, dtype=torch.float64).reshape(25, 2)
        found = torch.autograd.grad(y, wrt, cotangent)
    for one, other in zip(found, torch.autograd.grad(want, wrt, cotangent), strict=True):
        torch.testing.assert_close(one, other)


def test_blocks_are_as_large_with_many_nodes_as_with_few():
    """What an edge takes is what it reads, not the fields that it is read from."""

    def bytes_of(nodes):
        kernel, edges = Bessel().float(), torch.arange(64) % 5
        fields = {"src": {"x": torch.ones(nodes, 2)}, "dst": {"z": torch.ones(nodes, 2)},
                  "edge": {"w": torch.ones(64, 1)}}  # fmt: skip
        graph = tg.Graph.from_coo(edges, edges, num_src=nodes, num_dst=nodes)
        return measure(kernel, BlockFields(graph, fields), 64, {})

    assert bytes_of(5) == bytes_of(5000)


def test_explain_and_diagnostics_name_the_op_and_the_line():
    kernel = Bessel()
    x, z, w = inputs()
    kernel(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
    line = Bessel.message.__code__.co_firstlineno + 1
    for text in (kernel.explain(), kernel.diagnostics[0].message):
        assert "aten.i0" in text
        assert f"test_torch_bounded.py:{line}" in text


def test_nothing_of_the_first_call_is_kept_alive():
    """An error that is kept would keep the calls that it went through, down to the user's."""

    class Local:
        pass

    def first_call(kernel):
        x, z, w = inputs()
        local = Local()
        kernel(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
        return weakref.ref(local)

    kernel = Bessel()
    found = first_call(kernel)
    gc.collect()
    assert found() is None
    assert "aten.i0" in kernel.explain()


def test_strict_raises_with_the_op_and_the_line(monkeypatch):
    kernel = Bessel()
    x, z, w = inputs()
    call = {"graph": GRAPH, "src": {"x": x}, "dst": {"z": z}, "edge": {"w": w}}
    kernel(**call)
    monkeypatch.setenv("TIGA_STRICT", "1")
    with pytest.raises(errors.Unfusable, match=r"aten\.i0.*test_torch_bounded\.py"):
        kernel(**call)
    monkeypatch.delenv("TIGA_STRICT")
    kernel.strict = True
    with pytest.raises(NotImplementedError):
        kernel(**call)


@pytest.mark.parametrize("edges", [0, 1])
def test_few_edges(edges):
    kernel = Bessel()
    x, z, w = inputs()
    graph = tg.Graph.from_coo(SOURCES[:edges], TARGETS[:edges], num_src=17, num_dst=25)
    y = kernel(graph=graph, src={"x": x}, dst={"z": z}, edge={"w": w[:edges]})
    assert torch.autograd.grad(y.sum(), z)[0].shape == z.shape
    assert y.shape == (25, 2)


def test_a_change_of_what_is_read_is_seen():
    class Chosen(tg.MessagePassing):
        power, table = 1.0, torch.ones(2, dtype=torch.float64)

        def edge(self, src, dst, edge):
            return torch.special.i0(src.x) * self.power * self.table

    kernel = Chosen()
    x, _, _ = inputs()
    first = kernel(graph=GRAPH, src={"x": x})
    kernel.power = 3.0
    torch.testing.assert_close(kernel(graph=GRAPH, src={"x": x}), first * 3)
    kernel.table = torch.tensor([2.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(
        kernel(graph=GRAPH, src={"x": x}), first * 3 * torch.tensor([2.0, 4.0])
    )


def test_random_numbers_are_the_same_in_the_backward_pass():
    class Drop(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.nn.functional.dropout(src.x, 0.5, training=True)

    kernel = Drop()
    x = torch.ones(17, 1, requires_grad=True)
    with knobs.scope(memory_bound=400):
        torch.manual_seed(3)
        y = kernel(graph=GRAPH, src={"x": x})
        again = kernel(graph=GRAPH, src={"x": x})
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert not torch.equal(y, again)
    torch.testing.assert_close(gradient.sum(), y.sum())


def test_gradients_are_of_what_autocast_made():
    """The backward pass runs blocks again, outside of the context that the call was made in."""

    class Projected(tg.MessagePassing, torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(8, 8)

        def edge(self, src, dst, edge):
            return torch.special.i0e(self.linear(src.x).float())

    kernel, found = Projected(), []
    x = torch.randn(17, 8, requires_grad=True)

    def direct():
        message = torch.special.i0e(kernel.linear(x[SOURCES]).float())
        return torch.zeros(25, 8).index_add(0, TARGETS, message)

    for run in (lambda: kernel(graph=GRAPH, src={"x": x}), direct):
        with torch.autocast("cpu", torch.bfloat16):
            out = run()
        (first,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
        found.append((first, *torch.autograd.grad(first.square().sum(), kernel.linear.weight)))
    exact, expected = kernel.double(), found[1][0]
    x = x.detach().double().requires_grad_()
    message = torch.special.i0e(exact.linear(x[SOURCES]))
    out = torch.zeros(25, 8, dtype=x.dtype).index_add(0, TARGETS, message)
    (wide,) = torch.autograd.grad((out**2).sum(), x)
    by_cast, apart = (expected - wide).abs().max(), (found[0][0] - expected).abs().max()
    assert apart < by_cast / 10
    most = float(found[1][1].abs().max())
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0.02, atol=0.02 * most)


def test_masks_and_tuples_in_blocks():
    class Mixed(tg.MessagePassing):
        def edge(self, src, dst, edge):
            y = torch.special.i0(src.x)
            return {"kept": tg.mask(y, edge.w[:, 0] > 0), "top": tg.max()(y), "one": 1.0}

    x, _, w = inputs()
    with knobs.scope(memory_bound=2_000):
        out = Mixed()(graph=GRAPH, src={"x": x}, edge={"w": w})
    y = torch.special.i0(x[SOURCES])
    torch.testing.assert_close(out["kept"], reduced(tg.sum(), y * (w > 0)))
    torch.testing.assert_close(out["top"], reduced(tg.max(), y))
    assert out["one"].tolist()[:2] == [95.0, 5.0]


def direct(x, z, w, scale):
    """What `Bessel` computes, by torch alone."""
    message = torch.special.i0(x[SOURCES] * scale) * z[TARGETS] * w
    return torch.zeros(25, 2, dtype=x.dtype).index_add(0, TARGETS, message) + z


@pytest.mark.parametrize("bound", [2**30, 20_000, 1_500])
def test_second_and_third_derivatives(bound):
    """By torch over the whole graph at once."""
    kernel, found = Bessel(), []
    for run in (kernel, None):
        leaves = [*inputs(), kernel.scale]
        x, z, w, scale = leaves
        with knobs.scope(memory_bound=bound):
            y = (
                direct(x, z, w, scale) if run is None
                else run(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
            )  # fmt: skip
            cotangent = torch.linspace(-1, 1, 50, dtype=y.dtype).reshape(25, 2).requires_grad_()
            first = torch.autograd.grad((y * cotangent).sum(), leaves, create_graph=True)
            slope = sum((g**2).sum() for g in first)
            second = torch.autograd.grad(slope, [*leaves, cotangent], create_graph=True)
            third = torch.autograd.grad(sum(g.sin().sum() for g in second), [*leaves, cotangent])
        found.append((y, *first, *second, *third))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_training_on_forces_through_blocks():
    """Energies of distances, forces, and the gradient of a loss of both for the weights."""

    class Pair(tg.MessagePassing, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.width = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

        def energy(self, difference):
            return torch.special.i0e(difference.square().sum(-1) * self.width)

        def edge(self, src, dst, edge):
            return self.energy(src.at - dst.at)

    nodes, kernel = 17, Pair()
    targets = TARGETS % nodes
    graph = tg.Graph.from_coo(SOURCES, targets, num_src=nodes, num_dst=nodes)
    generator = torch.Generator().manual_seed(2)
    at = torch.randn(nodes, 3, generator=generator, dtype=torch.float64).requires_grad_()

    def by_blocks():
        return kernel(graph=graph, ndata={"at": at}).sum()

    def by_torch():
        return kernel.energy(at[SOURCES] - at[targets]).sum()

    steps = []
    for energy in (by_blocks, by_torch):
        with knobs.scope(memory_bound=4_000):
            total = energy()
            (force,) = torch.autograd.grad(total, at, create_graph=True)
            loss = total**2 + (force - 1).square().sum()
            steps.append(torch.autograd.grad(loss, [kernel.width, at]))
    for one, other in zip(*steps, strict=True):
        torch.testing.assert_close(one, other)
    assert "runs through torch" in kernel.explain()


def test_transforms_are_refused_with_the_reason():
    x, z, w = inputs()

    def run(x):
        return Bessel()(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w}).sum()

    x = x.detach()
    for transform, given in ((torch.func.grad, x), (torch.func.vmap, x[None])):
        with pytest.raises(errors.UnsupportedByBackend, match=r"of torch\.func .*aten\.i0"):
            transform(run)(given)


class Flipped(tg.MessagePassing):
    """Wider than registers, and features mix: recorded, but not compiled."""

    def edge(self, src, dst, edge):
        return src.x.flip(-1) * dst.z


class Pairs(tg.MessagePassing):
    """Compiles forward; its gradient holds wide values."""

    def edge(self, src, dst, edge):
        return (src.x * dst.z).flip(-1).amax(-1)


@pytest.mark.parametrize("width", [5000, 9000])
@pytest.mark.parametrize("kernel", [Flipped, Pairs])
def test_what_is_too_wide_to_compile_runs_in_blocks_both_ways(kernel, width):
    kernel, generator = kernel(), torch.Generator().manual_seed(0)
    x = torch.randn(17, width, generator=generator).requires_grad_()
    z = torch.randn(25, width, generator=generator).requires_grad_()
    ends = SimpleNamespace(x=x[SOURCES], z=z[TARGETS])
    messages = kernel.edge(ends, ends, None)
    want = torch.zeros(25, *messages.shape[1:]).index_add(0, TARGETS, messages)
    got = kernel(graph=GRAPH, src={"x": x}, dst={"z": z})
    torch.testing.assert_close(got, want)
    line = type(kernel).edge.__code__.co_firstlineno + 1
    assert f"test_torch_bounded.py:{line}" in kernel.explain()
    cotangent = torch.randn(want.shape, generator=generator)
    found = torch.autograd.grad(got, (x, z), cotangent)
    for one, other in zip(found, torch.autograd.grad(want, (x, z), cotangent), strict=True):
        torch.testing.assert_close(one, other)
    kernel.strict = True
    with pytest.raises(errors.Unfusable, match="elements that mix features"):
        kernel(graph=GRAPH, src={"x": x}, dst={"z": z})


def test_programs_of_built_in_reducers_are_kept(monkeypatch):
    made = []
    monkeypatch.setattr(parts, "unit_of", lambda program: made.append(program) or unit_of(program))
    kernel = Bessel()
    x, z, w = inputs()
    for _ in range(2):
        found = kernel(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
    assert len(made) == 1
    kernel.reducer = tg.mean()
    found = kernel(graph=GRAPH, src={"x": x}, dst={"z": z}, edge={"w": w})
    wanted = reduced(kernel.reducer, kernel.message(x[SOURCES], z[TARGETS], w)) + z
    torch.testing.assert_close(found, wanted)
