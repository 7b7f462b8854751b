"""Calls that cannot be fused over graphs in files on a GPU: block by block, within budgets."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tiga as tg
from tests.gpu.paged_harness import WIDTH, fields, same_bits, saved, with_damage, within
from tiga import knobs
from tiga.errors import InvalidFile, OutOfBudget
from tiga.frontends.torch.inspection import foretold

pytestmark = pytest.mark.usefixtures("where")
BOUND = 60_000


class Ordered(tg.MessagePassing):
    """Fields of both ends and of edges, sorted features, and fields of the row in `node`."""

    reducer = tg.mean()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.sort(src.x * edge.w[:, None], dim=-1).values - dst.x

    def node(self, dst: Any, aggregate: Any) -> Any:
        return aggregate * dst.x


class Spectrum(tg.MessagePassing, torch.nn.Module):
    """Weights, and two reducers of which one keeps the values of edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        message = (src.x @ self.weight).cummax(-1).values * edge.w[:, None]
        return {"largest": tg.max()(message), "each": tg.each()(torch.special.i0e(src.x))}


class Dropped(tg.MessagePassing):
    """Random numbers, the same in the backward pass; in `node`, too."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        kept = torch.nn.functional.dropout(src.x, 0.5, training=True)
        return torch.special.i0e(kept) * edge.w[:, None]

    def node(self, dst: Any, aggregate: Any) -> Any:
        return torch.nn.functional.dropout(torch.special.i0e(aggregate), 0.5, training=True)


KERNELS = [Ordered, Spectrum, Dropped]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return saved(tmp_path_factory.mktemp("blocks"), "uneven")


def made(kernel: Any, where: torch.device) -> Any:
    return kernel().to(where) if issubclass(kernel, torch.nn.Module) else kernel()


def results(kernel: Any, graph: Any, given: list[Any], second: bool = False) -> list[Any]:
    """The outputs, and the gradients of all inputs and parameters; those of these with `second`."""
    torch.manual_seed(7)
    x, w = given
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outs = list(out.values()) if isinstance(out, dict) else [out]
    leaves = [*given, *(kernel.parameters() if isinstance(kernel, torch.nn.Module) else ())]
    loss = sum((o.float() ** 2).sum().cpu() for o in outs)
    first = torch.autograd.grad(loss, leaves, create_graph=second)
    if not second:
        return [*(o.detach() for o in outs), *first]
    slope = sum((g.float() ** 2).sum().cpu() for g in first)
    return [*(g.detach() for g in first), *torch.autograd.grad(slope, leaves)]


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_same_bits_as_in_memory_in_the_same_blocks(
    kernel: Any, in_file: bool, uneven: Any, where: Any
) -> None:
    memory, opened = uneven
    with knobs.scope(memory_bound=BOUND):
        expected = results(
            made(kernel, where), memory, fields(opened, where, torch.float32, in_file=False)
        )
        layer = made(kernel, where)
        budgets = {"device": "2MiB", "host-pinned": "64KiB", "host": "2MiB"}
        with tg.execution(memory=budgets) as run:
            found = results(layer, opened, fields(opened, where, torch.float32, in_file))
            report = run.memory_report()
    assert same_bits(found, expected)
    assert within(report)
    assert report["peak_bytes"]["device"] > 0
    assert report["peak_bytes"]["nvme"] == 0
    assert "blocks of destinations through torch" in layer.explain()


@pytest.mark.parametrize("which", [0, 1], ids=["memory", "file"])
def test_gradients_are_of_the_random_numbers_that_were_drawn(
    which: int, uneven: Any, where: Any
) -> None:
    class Kept(tg.MessagePassing):
        def edge(self, src: Any, dst: Any, edge: Any) -> Any:
            kept = torch.nn.functional.dropout(src.one, 0.5, training=True)
            return torch.sort(kept, dim=-1).values

    one = torch.ones(80, WIDTH, device=where, requires_grad=True)
    with knobs.scope(memory_bound=BOUND):
        out = Kept()(graph=uneven[which], ndata={"one": one})
        torch.rand(5, device=where)  # others draw too
        before = torch.get_rng_state()
        (gradient,) = torch.autograd.grad(out.sum(), one)
    assert torch.equal(before, torch.get_rng_state())
    assert 0 < out.sum() < 2 * WIDTH * uneven[which].num_edges
    torch.testing.assert_close(gradient.sum(), out.detach().sum())


@pytest.mark.parametrize("host", ["1MiB", "128KiB"])
def test_results_that_the_device_does_not_hold(
    host: str, uneven: Any, where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie on the host, or in files; smaller blocks add gradients in another order."""
    from tiga.frontends.torch.blocks import paged as paged_blocks

    holds = "host" if host == "1MiB" else "nvme"
    monkeypatch.setattr(paged_blocks, "tier_of", lambda nbytes, left: holds)
    memory, opened = uneven
    expected = results(Ordered(), memory, fields(opened, where, torch.float32, in_file=False))
    budgets = {"device": "256KiB", "host-pinned": "4KiB", "host": host}
    with tg.execution(memory=budgets, spill_dir=tmp_path) as run:
        found = results(Ordered(), opened, fields(opened, where, torch.float32, in_file=True))
        report = run.memory_report()
    assert within(report)
    assert (report["peak_bytes"]["nvme"] > 0) == (holds == "nvme")
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cpu"
        torch.testing.assert_close(one, other.cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [Ordered, Dropped], ids=lambda k: k.__name__)
def test_second_derivatives(kernel: Any, uneven: Any, where: Any) -> None:
    memory, opened = uneven
    with knobs.scope(memory_bound=BOUND):
        expected = results(
            kernel(), memory, fields(opened, where, torch.float32, in_file=False), second=True
        )
        with tg.execution(memory={"device": "4MiB", "host-pinned": "64KiB"}) as run:
            given = fields(opened, where, torch.float32, in_file=True)
            found = results(kernel(), opened, given, second=True)
            assert within(run.memory_report())
    for one, other in zip(found, expected, strict=True):
        most = float(other.abs().max())
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-5 * most)


@pytest.mark.parametrize("budget", ["256KiB", "4MiB"])
def test_a_run_takes_what_was_told(budget: str, uneven: Any, where: Any, tmp_path: Path) -> None:
    opened, layer = uneven[1], Ordered()
    budgets = {"device": budget, "host-pinned": "16KiB", "host": "1MiB"}
    with tg.execution(memory=budgets, spill_dir=tmp_path) as run:
        x, w = fields(opened, where, torch.float32, in_file=True)
        why, told = foretold(layer, opened, (None, None, {"w": w}, {"x": x}), {})
        assert "not be fused" in why[0]
        out = layer(graph=opened, ndata={"x": x}, edge={"w": w})
        torch.autograd.grad(out.sum().cpu(), [x, w])
        report = run.memory_report()
    assert [p.what for p in told] == ["forward", "gradients"]
    for tier in ("device", "host-pinned", "host"):
        assert report["peak_bytes"][tier] <= max(p.peak[tier] for p in told)


def test_a_row_whose_messages_do_not_fit_is_refused(uneven: Any, where: Any) -> None:
    opened = uneven[1]
    x, w = (field.detach() for field in fields(opened, where, torch.float32, in_file=True))
    with (
        tg.execution(memory={"device": "8KiB"}),
        pytest.raises(OutOfBudget, match=r"of 'device'.*Raise memory=\{'device'"),
    ):
        Ordered()(graph=opened, ndata={"x": x}, edge={"w": w})


def test_damage_is_found(tmp_path: Path, uneven: Any, where: Any) -> None:
    opened = uneven[1]
    damaged = with_damage(opened, tmp_path / "g", where)
    with pytest.raises(InvalidFile, match="out of the range"):
        results(Ordered(), damaged, fields(opened, where, torch.float32, in_file=True))
