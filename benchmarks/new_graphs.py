"""Minibatch training with a new graph in every step: molecules in batches, on the CPU or a GPU.

    python -m benchmarks.new_graphs [--device cuda] [--size small|large] [--seconds S] [--skip NAME]

Every step has its own batch: other molecules, other numbers of atoms and bonds. A step builds the
graph, predicts a number for each molecule with two layers of message passing, and takes gradients
of all weights. Loss and gradients of everybody are compared with float64 first. Then all take turns
on the same batches, one step each; figures are the least time of a step, and ratios of these.
`again` is the same step on a graph that it has seen: what is above that is the price of a new one.

It also says how often a step waits for the device (CUDA), how many programs were compiled while
graphs changed, and how the memory of the process grew.
"""

import argparse
import gc
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tiga as tg

BASIS = 8
TOLERANCE = 1e-3
BATCHES = 40


@dataclass(frozen=True)
class Size:
    """Molecules in a batch, bonds of an atom in the mean, and features."""

    molecules: int
    degree: int
    width: int


SIZES = {"small": Size(18, 7, 32), "large": Size(2600, 20, 64)}
ATOMS = 12, 28
"""The fewest and the most atoms of a molecule."""


@dataclass(frozen=True)
class Batch:
    """Molecules side by side: `x` [atoms, width], `bonds` [2, bonds] in no order, `basis`
    [bonds, BASIS], the molecule of each atom, and a target for each molecule."""

    x: torch.Tensor
    bonds: torch.Tensor
    basis: torch.Tensor
    molecule: torch.Tensor
    target: torch.Tensor

    @staticmethod
    def of(size: Size, generator: torch.Generator) -> "Batch":
        counts = torch.randint(*ATOMS, (size.molecules,), generator=generator)
        first = counts.cumsum(0) - counts
        molecule = torch.arange(size.molecules).repeat_interleave(counts)
        atoms = len(molecule)
        centre = torch.arange(atoms).repeat_interleave(size.degree)
        other = (torch.rand(len(centre), generator=generator) * counts[molecule[centre]]).long()
        bonds = torch.stack([first[molecule[centre]] + other, centre])
        bonds = bonds[:, torch.randperm(len(centre), generator=generator)]
        return Batch(
            torch.randn(atoms, size.width, generator=generator), bonds.contiguous(),
            torch.rand(len(centre), BASIS, generator=generator), molecule,
            torch.randn(size.molecules, 1, generator=generator),
        )  # fmt: skip

    def to(self, device: str) -> "Batch":
        return Batch(*(value.to(device) for value in vars(self).values()))

    def double(self) -> "Batch":
        return Batch(self.x.double(), self.bonds, self.basis.double(), self.molecule,
                     self.target.double())  # fmt: skip


class Tiga(tg.MessagePassing, nn.Module):
    """The mean of neighbours' features, weighted by a linear function of the bond."""

    reducer = tg.mean()

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh, self.mix = nn.Linear(BASIS, width), nn.Linear(width, width)

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return src.x * self.weigh(edge.basis)

    def node(self, dst: Any, aggregate: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.mix(aggregate) + dst.x)


class TigaLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = Tiga(width)

    def forward(self, graph: tg.Graph, batch: Batch, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(graph=graph, ndata={"x": x}, edge={"basis": batch.basis})
        return out


class TorchLayer(nn.Module):
    """The same in plain torch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh, self.mix = nn.Linear(BASIS, width), nn.Linear(width, width)

    def forward(self, graph: None, batch: Batch, x: torch.Tensor) -> torch.Tensor:
        src, dst = batch.bonds[0], batch.bonds[1]
        message = x[src] * self.weigh(batch.basis)
        total = torch.zeros_like(x).index_add(0, dst, message)
        count = x.new_zeros(len(x)).index_add(0, dst, x.new_ones(len(dst)))
        mean = total / count.clamp(min=1)[:, None]
        return torch.relu(self.mix(mean) + x)


def pyg_layer(width: int) -> nn.Module:
    """The same as a layer of PyG."""
    from torch_geometric.nn import MessagePassing

    class Layer(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="mean")
            self.weigh, self.mix = nn.Linear(BASIS, width), nn.Linear(width, width)

        def forward(self, graph: None, batch: Batch, x: torch.Tensor) -> torch.Tensor:
            mean = self.propagate(batch.bonds, x=x, basis=batch.basis)
            return torch.relu(self.mix(mean) + x)

        def message(self, x_j: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
            return x_j * self.weigh(basis)

    return Layer()


class Network(nn.Module):
    """Two layers, the sum over each molecule, and a number."""

    def __init__(self, layer: Callable[[int], nn.Module], width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer(width) for _ in range(2)])
        self.readout = nn.Linear(width, 1)

    def forward(self, graph: Any, batch: Batch) -> torch.Tensor:
        x = batch.x
        for layer in self.layers:
            x = layer(graph, batch, x)
        shape = len(batch.target), x.shape[1]
        each = x.new_zeros(shape).index_add(0, batch.molecule, x)
        return (self.readout(each) - batch.target).square().mean()


def build(batch: Batch) -> tg.Graph:
    """The graph of a batch."""
    return tg.Graph.from_edge_index(batch.bonds, num_nodes=len(batch.x))


def no_graph(batch: Batch) -> None:
    """Those that take the indices themselves need none."""


@dataclass(frozen=True)
class Contestant:
    """A network, what builds its graphs, and what runs both."""

    network: nn.Module
    build: Callable[[Batch], Any]
    loss: Callable[[Any, Batch], torch.Tensor]

    def step(self, batch: Batch, graph: Any = None) -> list[torch.Tensor]:
        """The loss and the gradient of every weight."""
        graph = self.build(batch) if graph is None else graph
        loss = self.loss(graph, batch)
        return [loss, *torch.autograd.grad(loss, list(self.network.parameters()))]


def contestants(width: int, device: str, skip: Sequence[str]) -> dict[str, Contestant]:
    """All that can take part here, with the same weights."""
    torch.manual_seed(0)
    plain = Network(TorchLayer, width).to(device)
    makers: dict[str, tuple[Callable[[int], nn.Module], Any, bool]] = {
        "tiga": (TigaLayer, build, False),
        "tiga, compiled": (TigaLayer, build, True),
        "torch": (TorchLayer, no_graph, False),
        "torch.compile": (TorchLayer, no_graph, True),
        "pyg": (pyg_layer, no_graph, False),
        "pyg, compiled": (pyg_layer, no_graph, True),
    }
    found = {}
    for name, (layer, builder, compiled) in makers.items():
        if name in skip:
            continue
        try:
            network = Network(layer, width).to(device)
        except ImportError as missing:
            print(f"{name}: {missing}")
            continue
        for mine, weight in zip(network.parameters(), plain.parameters(), strict=True):
            mine.data.copy_(weight)
        run: Any = torch.compile(network, dynamic=True) if compiled else network
        found[name] = Contestant(network, builder, run)
    return found


def reference(batch: Batch, width: int, device: str) -> list[torch.Tensor]:
    """Loss and gradients in float64, by plain torch."""
    torch.manual_seed(0)
    network = Network(TorchLayer, width).to(device).double()
    return Contestant(network, no_graph, network).step(batch.double())


def worst(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest difference of a tensor, over its largest value."""
    pairs = zip(found, wanted, strict=True)
    return max(float(((f - w).abs().max() / w.abs().max()).detach()) for f, w in pairs)


def check(name: str, one: Contestant, batches: Sequence[Batch], wanted: Any) -> None:
    """Raise SystemExit unless loss and gradients are right on every batch of these."""
    for batch, right in zip(batches, wanted, strict=True):
        error = worst(one.step(batch), right)
        if not error < TOLERANCE:
            raise SystemExit(f"{name}: wrong by {error:.2g}")


def timed(call: Callable[[], Any], device: str) -> float:
    """Microseconds of a call; what it left to the device included."""
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start)


def take_turns(
    everyone: Mapping[str, Contestant], batches: Sequence[Batch], device: str, seconds: float
) -> dict[str, list[float]]:
    """Times of steps by name; a step on a graph that it has seen is `again`."""
    seen = batches[0], build(batches[0])
    times: dict[str, list[float]] = {name: [] for name in (*everyone, "again")}
    end = time.perf_counter() + seconds
    for batch in itertools.cycle(batches):
        for name, one in everyone.items():
            times[name].append(timed(partial(one.step, batch), device))
        times["again"].append(timed(partial(everyone["tiga"].step, *seen), device))
        if time.perf_counter() > end:
            return times
    return times


def parts(one: Contestant, batches: Sequence[Batch], device: str) -> dict[str, float]:
    """The least microseconds of the parts of a step with a new graph."""
    found: dict[str, list[float]] = {"graph": [], "forward": [], "backward": []}
    kept: dict[str, Any] = {}
    for batch in batches:
        kept.clear()

        def made(batch: Batch = batch) -> None:
            kept["graph"] = one.build(batch)

        def forward(batch: Batch = batch) -> None:
            kept["loss"] = one.loss(kept["graph"], batch)

        found["graph"].append(timed(made, device))
        found["forward"].append(timed(forward, device))
        found["backward"].append(timed(lambda: kept["loss"].backward(), device))
    return {name: min(times) for name, times in found.items()}


def waits(call: Callable[[], Any]) -> int:
    """How often a call waits for the device."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught)


def compiled(one: Contestant) -> tuple[int, int]:
    """Programs captured and executables built for the kernels of a network."""
    kernels = [m for m in one.network.modules() if isinstance(m, Tiga)]
    infos = [kernel.cache_info for kernel in kernels]
    return sum(i.variants for i in infos), sum(i.compiled for i in infos)


def resident() -> int:
    """Bytes of memory that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growth(one: Contestant, batches: Sequence[Batch], steps: int) -> float:
    """MiB by which the memory of the process grew in so many steps, each with a new graph."""
    for batch in batches:
        one.step(batch)
    gc.collect()
    before = resident()
    for _, batch in zip(range(steps), itertools.cycle(batches), strict=False):
        one.step(batch)
    gc.collect()
    return (resident() - before) / 2**20


def report(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the report."""
    size, device = SIZES[options.size], options.device
    generator = torch.Generator().manual_seed(0)
    batches = [Batch.of(size, generator).to(device) for _ in range(options.batches)]
    atoms = statistics.mean(len(b.x) for b in batches)
    bonds = statistics.mean(b.bonds.shape[1] for b in batches)
    everyone = contestants(size.width, device, options.skip)
    wanted = [reference(batch, size.width, device) for batch in batches[:3]]
    for name, one in everyone.items():
        check(name, one, batches[:3], wanted)
    yield f"{options.size}, {device}: about {atoms:.0f} atoms, {bonds:.0f} bonds, F={size.width}"
    ours = everyone["tiga"]
    for one in everyone.values():
        for batch in batches[:10]:
            one.step(batch)
    before = compiled(ours), torch._dynamo.utils.counters["stats"]["unique_graphs"]
    if device == "cuda":
        whole = waits(lambda: ours.step(batches[0]))
        yield f"waits for the device: {waits(lambda: build(batches[0]))} to build, {whole} in all"
    times = take_turns(everyone, batches, device, options.seconds)
    least = {name: min(found) for name, found in times.items()}
    for name, found in least.items():
        yield f"{name:16s} {found:10.0f} µs, {found / least['tiga']:.2f} of tiga's"
    split = parts(ours, batches, device)
    yield ", ".join(f"{name} {least:.0f}" for name, least in split.items()) + " µs (tiga)"
    after = compiled(ours), torch._dynamo.utils.counters["stats"]["unique_graphs"]
    yield f"programs, executables and graphs of torch before {before} and after {after}"
    if options.steps:
        grown = growth(ours, batches, options.steps)
        yield f"memory grew by {grown:.1f} MiB in {options.steps} steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="small", choices=tuple(SIZES))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--steps", type=int, default=0, help="steps to watch memory over")
    parser.add_argument("--skip", action="append", default=[])
    for line in report(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
