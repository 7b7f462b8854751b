"""What a run saves for its gradient: which values, and when the gradient may write over them."""

import pytest
import torch

import tiga as tg
from tiga.frontends.torch.variants import state_of

NODES, EDGES, F = 40, 300, 8


class Difference(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x)


def case(reducer):
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, NODES, (2, EDGES), generator=generator)
    graph = tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)
    kernel = Difference()
    kernel.reducer = reducer()
    x = torch.rand(NODES, F, generator=generator, requires_grad=True)
    seed = torch.rand(NODES, F, generator=generator)
    return kernel, (lambda: kernel(graph=graph, ndata={"x": x})), x, seed


def gradient(y, x, seed, **options):
    return torch.autograd.grad(y, x, seed, **options)[0]


def arrangements(kernel):
    (variant,) = state_of(kernel).all()
    runnables = dict(variant.unit.runnables())
    return runnables["gradient: forward"].executable.executable.arranged


def test_the_gradient_of_a_deviation_keeps_the_mean_and_walks_for_it_no_more() -> None:
    kernel, run, x, seed = case(tg.std)
    gradient(run(), x, seed)
    (variant,) = state_of(kernel).all()
    executable = dict(variant.unit.runnables())["gradient: forward"].executable.executable
    walks = [step.program for step in executable.kernels if step.program.relation is not None]
    assert [len(walk.phases) for walk in walks] == [1, 1]


def test_a_gradient_writes_over_what_was_saved_for_it_alone() -> None:
    kernel, run, x, seed = case(tg.std)
    gradient(run(), x, seed)
    ((unneeded, _),) = arrangements(kernel)
    assert unneeded
    (arrangement,) = arrangements(kernel).values()
    assert any(host.op.name == "input" for host in arrangement.placed.hosts.values())


@pytest.mark.parametrize("reducer", [tg.std, tg.var])
def test_a_kept_graph_gives_the_same_gradient_again(reducer) -> None:
    _, run, x, seed = case(reducer)
    expected = gradient(run(), x, seed)
    y = run()
    for _ in range(3):
        assert torch.equal(gradient(y, x, seed, retain_graph=True), expected)
    assert torch.equal(gradient(y, x, seed), expected)


def test_a_gradient_that_is_differentiated_leaves_what_it_read() -> None:
    """Its own gradient reads it again."""
    _, run, x, seed = case(tg.std)
    y = run()
    first = gradient(y, x, seed, create_graph=True)
    second = gradient(first, x, seed, retain_graph=True)
    assert torch.equal(gradient(first, x, seed, retain_graph=True), second)
    assert torch.equal(gradient(y, x, seed), first)


def test_batched_cotangents_read_what_was_saved_once_each() -> None:
    _, run, x, seed = case(tg.std)
    seeds = torch.stack([seed, 2 * seed, seed])
    (found,) = torch.autograd.grad(run(), x, seeds, is_grads_batched=True)
    for one, cotangent in zip(found, seeds, strict=True):
        assert torch.equal(one, gradient(run(), x, cotangent))


def test_what_hooks_hold_is_left_as_it_is() -> None:
    _, run, x, seed = case(tg.std)
    held = []

    def pack(tensor):
        held.append((tensor, tensor.clone()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = run()
    gradient(y, x, seed)
    assert len(held) > 1
    assert all(torch.equal(tensor, copy) for tensor, copy in held)


def test_checkpoints_give_the_same_gradient() -> None:
    _, run, x, seed = case(tg.std)
    expected = gradient(run(), x, seed)
    y = torch.utils.checkpoint.checkpoint(run, use_reentrant=False)
    assert torch.equal(gradient(y, x, seed), expected)
