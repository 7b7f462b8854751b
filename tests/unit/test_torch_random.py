"""Random numbers and statistics inside `edge`: dropout, uniform numbers, BatchNorm."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import tiga as tg
from tiga import errors, knobs
from tiga.ops.leaf import Input
from tiga.ops.random import RandomBits
from tiga.types import GLOBAL, Type, int64

COUNT = 3000
SRC = torch.arange(COUNT) * 7 % 50
ALONE = tg.Graph.from_coo(SRC, torch.arange(COUNT), num_src=50, num_dst=COUNT)
"""One edge per destination: results are messages."""
SHARED = tg.Graph.from_coo(SRC, torch.arange(COUNT) * 11 % 40, num_src=50, num_dst=40)


class Drop(tg.MessagePassing, torch.nn.Module):
    def __init__(self, p=0.25):
        super().__init__()
        self.dropout = torch.nn.Dropout(p)

    def edge(self, src, dst, edge):
        return self.dropout(src.x)


def ones(*shape, dtype=torch.float32):
    return torch.ones(50, *shape, dtype=dtype)


@pytest.mark.parametrize(
    ("key", "counter", "lane", "stream", "words"),
    [
        (0, 0, 0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (-1, -1, 2**32 - 1, 2**32 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822, 0x85A308D3243F6A88 - 2**64, 0x13198A2E, 0x03707344,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)  # fmt: skip
def test_the_generator_gives_its_published_numbers(key, counter, lane, stream, words):
    arrays = [np.array([v], np.int64) for v in (key, counter, lane)]
    got = [RandomBits(stream, word).reference(*arrays).item() for word in range(4)]
    assert tuple(got) == words


def test_random_bits_have_no_derivative_and_one_type():
    x = Input("x", Type(int64, (3,), GLOBAL))()
    bits = RandomBits(0, 0)(x, x, x)
    assert bits.type == x.type
    assert bits.op.vjp(bits, bits, x, x, x) == (None, None, None)


@pytest.mark.parametrize("shape", [(), (2,), (3, 5), (300,)])
def test_dropout_drops_the_share_it_is_given_and_scales_the_rest(shape):
    kernel = Drop()
    y = kernel(graph=ALONE, src={"x": ones(*shape)})
    assert not kernel.diagnostics
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    share = (y == 0).double()
    assert abs(share.mean() - 0.25) < 4 * (0.25 * 0.75 / share.numel()) ** 0.5
    if shape == (300,):
        for axis in (0, 1):  # no row, and no column, is drawn as another
            kept = share - share.mean()
            other = kept.roll(1, axis)
            assert abs((kept * other).mean()) < 5 * 0.1875 / share.numel() ** 0.5


def test_draws_are_fresh_per_call_and_repeat_under_a_seed():
    kernel, x = Drop(), ones(8)
    torch.manual_seed(3)
    first, second = kernel(graph=ALONE, src={"x": x}), kernel(graph=ALONE, src={"x": x})
    torch.manual_seed(3)
    assert torch.equal(first, kernel(graph=ALONE, src={"x": x}))
    assert not torch.equal(first, second)
    assert kernel.cache_info.variants == 1
    kernel.eval()
    assert torch.equal(kernel(graph=ALONE, src={"x": x}), torch.ones(COUNT, 8))
    state = torch.get_rng_state()
    kernel(graph=ALONE, src={"x": x})
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("reducer", [tg.sum(), tg.max(), tg.softmax()], ids=lambda r: r.__class__)
def test_every_walk_and_derivative_sees_the_same_draws(reducer):
    """The gradient equals that of the function with the mask held fixed, to second order."""

    class Attend(Drop):
        def edge(self, src, dst, edge):
            value = self.dropout(torch.tanh(src.x * edge.w))
            return self.reducer(src.x[:, 0], value) if reducer.arguments == 2 else value

    Attend.reducer = reducer
    kernel = Attend()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64, generator=generator).requires_grad_()
    w = torch.randn(60, 1, dtype=torch.float64, generator=generator).requires_grad_()
    small = tg.Graph.from_coo(SRC[:60], torch.arange(60) % 9, num_src=50, num_dst=9)

    def function(x, w):
        torch.manual_seed(5)
        return kernel(graph=small, src={"x": x}, edge={"w": w})

    assert torch.autograd.gradcheck(function, (x, w))
    assert torch.autograd.gradgradcheck(function, (x, w))
    assert not kernel.diagnostics


def test_two_draws_of_one_edge_differ_and_any_thread_count_gives_the_same():
    class Twice(Drop):
        def edge(self, src, dst, edge):
            return torch.stack([self.dropout(src.x), F.dropout(src.x, 0.25)], 1)

    kernel = Twice()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        results.append(kernel(graph=SHARED, src={"x": ones(6)}))
    assert torch.equal(*results)
    both = kernel(graph=ALONE, src={"x": ones(6)})
    assert not torch.equal(both[:, 0], both[:, 1])


def test_dropout_in_node_and_of_parameters():
    class Inside(Drop):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(400))

        def edge(self, src, dst, edge):
            return src.x * self.dropout(self.weight)

        def node(self, dst, aggregate):
            return self.dropout(aggregate)

    kernel = Inside()
    y = kernel(graph=ALONE, src={"x": ones(400)})
    columns = (y == 0).all(0)
    assert 0.15 < columns.double().mean() < 0.35
    rest = (y[:, ~columns] == 0).double().mean()
    assert abs(rest - 0.25) < 0.01
    assert not kernel.diagnostics


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_and_of_all(p):
    y = Drop(p)(graph=ALONE, src={"x": ones(2)})
    assert torch.equal(y, torch.full((COUNT, 2), 1 - p))


def test_a_probability_out_of_range_is_refused():
    class Wrong(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return F.dropout(src.x, 1.5)

    with pytest.raises(errors.InvalidValue, match=r"test_torch_random\.py:\d+: dropout"):
        Wrong()(graph=ALONE, src={"x": ones(2)})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_uniform_numbers(dtype):
    class Uniform(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.rand_like(src.x)

    kernel = Uniform()
    u = kernel(graph=ALONE, src={"x": ones(20, dtype=dtype)}).double()
    assert not kernel.diagnostics
    assert u.min() >= 0
    assert u.max() <= 1 if dtype == torch.bfloat16 else u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / (12 * u.numel()) ** 0.5
    assert abs(u.var() - 1 / 12) < 0.01


# BatchNorm


class Normed(tg.MessagePassing, torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64, **options)

    def edge(self, src, dst, edge):
        return self.norm(src.x)


class NormedInBlocks(Normed):
    def edge(self, src, dst, edge):
        return self.norm(torch.special.i0(src.x))


@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("kind", [Normed, NormedInBlocks])
def test_batch_norm_in_train_mode_is_refused_with_what_to_do(kind, track):
    kernel = kind(track_running_stats=track)
    line = kind.edge.__code__.co_firstlineno + 1
    with pytest.raises(errors.InvalidValue, match=rf"random\.py:{line}: .*call \.eval\(\) on"):
        kernel(graph=ALONE, src={"x": ones(3, dtype=torch.float64)})


@pytest.mark.parametrize("kind", [Normed, NormedInBlocks])
def test_batch_norm_uses_its_running_statistics_in_eval_mode(kind):
    kernel = kind()
    kernel.norm(torch.randn(40, 3, dtype=torch.float64))
    kernel.eval()
    x = torch.randn(50, 3, dtype=torch.float64, requires_grad=True)
    with knobs.scope(memory_bound=20_000):
        y = kernel(graph=ALONE, src={"x": x})
    want = kernel.norm(torch.special.i0(x) if kind is NormedInBlocks else x)[SRC]
    torch.testing.assert_close(y, want)
    wrt = (x, kernel.norm.weight, kernel.norm.bias)
    for one, other in zip(
        torch.autograd.grad(y.square().sum(), wrt),
        torch.autograd.grad(want.square().sum(), wrt),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert bool(kernel.diagnostics) == (kind is NormedInBlocks)
