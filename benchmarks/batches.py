"""Batches of small graphs: what it takes to make one, and to train on the forces in it.

    python -m benchmarks.batches [--molecules 64] [--atoms 30] [--degree 12] [--seconds S]
        [--device cuda]

Graphs of molecules are made once, as a data set has them; every step draws others, puts them side
by side, and takes the gradient of a loss of energies and of forces, which are derivatives
themselves. Ours and plain torch's are compared with float64 first, and then take turns;
`torch.compile` has no second derivatives. Figures are the least times, with a GPU's work. It also
says how many executables were built while batches changed. With `--device cuda` the data set lies
on the GPU; batches of one on the host that are sent there are given beside.
"""

import argparse
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import tiga as tg
from benchmarks.new_graphs import timed, worst

BASIS, WIDTH, DRAWN = 16, 32, 20
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Molecule:
    """`bonds` [2, bonds] in no order, or by destination, the graph of them, and positions of
    atoms."""

    bonds: torch.Tensor
    graph: tg.Graph
    position: torch.Tensor

    @staticmethod
    def of(atoms: int, degree: int, ordered: bool, generator: torch.Generator) -> "Molecule":
        atoms = int(torch.randint(atoms * 2 // 3, atoms * 4 // 3 + 1, (), generator=generator))
        dst = torch.arange(atoms).repeat_interleave(degree)
        step = torch.randint(1, max(atoms, 2), (len(dst),), generator=generator)
        bonds = torch.stack([(dst + step) % atoms, dst])
        if not ordered:
            bonds = bonds[:, torch.randperm(len(dst), generator=generator)]
        graph = tg.Graph.from_edge_index(bonds, num_nodes=atoms)
        return Molecule(bonds, graph, 2 * torch.randn(atoms, 3, generator=generator))

    def to(self, device: str) -> "Molecule":
        bonds = self.bonds.to(device)
        graph = tg.Graph.from_edge_index(bonds, num_nodes=len(self.position))
        return Molecule(bonds, graph, self.position.to(device))


def joined(parts: Sequence[Molecule]) -> tuple[torch.Tensor, int]:
    """The bonds of all molecules, and the number of atoms, by torch alone."""
    first, found = 0, []
    for part in parts:
        found.append(part.bonds + first)
        first += len(part.position)
    return torch.cat(found, 1), first


def made_anew(parts: Sequence[Molecule]) -> tg.Graph:
    """One graph of the bonds of all, sorted."""
    bonds, atoms = joined(parts)
    return tg.Graph.from_edge_index(bonds, num_nodes=atoms)


def ways(parts: Sequence[Molecule]) -> dict[str, Callable[[], Any]]:
    """What makes a batch of these molecules, or a part of it."""
    graphs = [part.graph for part in parts]
    found: dict[str, Callable[[], Any]] = {
        "torch.cat of positions": lambda: torch.cat([part.position for part in parts]),
        "torch.cat of bonds": lambda: joined(parts),
        "Graph.batch": lambda: tg.Graph.batch(graphs),
        "with its readout": lambda: tg.Graph.batch(graphs).membership(),
        "a graph made anew": lambda: made_anew(parts),
    }
    if importlib.util.find_spec("torch_geometric"):
        from torch_geometric.data import Batch, Data

        data = [Data(edge_index=part.bonds, pos=part.position) for part in parts]
        found["pyg's Batch"] = lambda: Batch.from_data_list(data)
    return found


def sent(ways_here: dict[str, Callable[[], Any]], device: str) -> dict[str, Callable[[], Any]]:
    """Batches of a data set on the host, on a device."""

    def moved(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: make().to(device)

    names = ("Graph.batch", "pyg's Batch")
    return {f"{name}, sent": moved(ways_here[name]) for name in names if name in ways_here}


class Pairs(tg.MessagePassing, nn.Module):
    """The energy of an atom: a network of waves of the distances to others."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, 6, BASIS))
        self.hidden, self.energy = nn.Linear(BASIS, WIDTH), nn.Linear(WIDTH, 1)

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return self.message(src.r - dst.r)

    def message(self, apart: torch.Tensor) -> torch.Tensor:
        """The energy of edges from vectors along them."""
        distance = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        found: torch.Tensor = self.energy(
            torch.tanh(self.hidden(torch.exp(-((distance - self.centres) ** 2))))
        )
        return found


class Total(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.energy


class Ours(nn.Module):
    """Energies of the molecules of a batch."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__()
        self.pairs, self.total = pairs, Total()

    def forward(self, parts: Sequence[Molecule], position: torch.Tensor) -> torch.Tensor:
        batch = tg.Graph.batch([part.graph for part in parts])
        atoms = self.pairs(graph=batch, ndata={"r": position})
        found: torch.Tensor = self.total(graph=batch.membership(), src={"energy": atoms[:, 0]})
        return found


class Plain(nn.Module):
    """The same in plain torch."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__()
        self.pairs = pairs

    def forward(self, parts: Sequence[Molecule], position: torch.Tensor) -> torch.Tensor:
        (src, dst), atoms = joined(parts)
        message = self.pairs.message(position[src] - position[dst])[:, 0]
        each = position.new_zeros(atoms).index_add(0, dst, message)
        counts = torch.tensor([len(part.position) for part in parts])
        owner = torch.arange(len(parts)).repeat_interleave(counts).to(position.device)
        return position.new_zeros(len(parts)).index_add(0, owner, each)


def step(model: nn.Module, parts: Sequence[Molecule]) -> list[torch.Tensor]:
    """A loss of energies and forces, and its gradient by the weights."""
    weights = list(model.parameters())
    position = torch.cat([part.position for part in parts]).to(weights[0].dtype).requires_grad_()
    energy = model(parts, position)
    (slope,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
    loss = energy.square().mean() + slope.square().mean()
    return [loss, *torch.autograd.grad(loss, weights)]


def check(model: nn.Module, parts: Sequence[Molecule], wanted: Sequence[torch.Tensor]) -> None:
    """Raise SystemExit unless loss and gradients are right."""
    error = worst(step(model, parts), wanted)
    if not error < TOLERANCE:
        raise SystemExit(f"{type(model).__name__}: wrong by {error:.2g}")


def drawn(known: Sequence[Molecule], count: int) -> Iterator[list[Molecule]]:
    """Batches of so many molecules, others each time."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(len(known), generator=generator)[:count]
        yield [known[i] for i in order.tolist()]


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float, device: str) -> dict[str, float]:
    """The least microseconds of each."""
    least, spent = dict.fromkeys(calls, float("inf")), 0.0
    while spent < 1e6 * seconds:
        for name, call in calls.items():
            took = timed(call, device)
            least[name], spent = min(least[name], took), spent + took
    return least


def report(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the report."""
    generator, count = torch.Generator().manual_seed(0), options.molecules
    device = options.device
    for ordered in (False, True):
        sizes = options.atoms, options.degree, ordered
        known = [Molecule.of(*sizes, generator) for _ in range(2 * count)]
        calls = ways(known[:count])
        if device != "cpu":
            known = [part.to(device) for part in known]
            calls = ways(known[:count]) | sent(calls, device)
        parts = known[:count]
        edges = sum(part.graph.num_edges for part in parts)
        yield f"{count} molecules, {edges} bonds {'by destination' if ordered else 'in no order'}"
        for name, took in in_turns(calls, options.seconds / 4, device).items():
            yield f"  {name:24s} {took:8.0f} µs"
    torch.manual_seed(0)
    pairs = Pairs().to(device)
    models: dict[str, nn.Module] = {"tiga": Ours(pairs), "torch": Plain(pairs)}
    reference = Plain(Pairs().to(device))
    reference.load_state_dict(models["torch"].state_dict())
    wanted = step(reference.double(), parts)
    for model in models.values():
        check(model, parts, wanted)
    before, batches = pairs.cache_info.compiled, drawn(known, count)
    ready = itertools.cycle([next(batches) for _ in range(DRAWN)])

    def turn(model: nn.Module) -> Callable[[], Any]:
        return lambda: step(model, next(ready))

    turns = {name: turn(model) for name, model in models.items()}
    least = in_turns(turns, options.seconds, device)
    for name, took in least.items():
        yield f"  step of {name:16s} {took:8.0f} µs, {took / least['tiga']:.2f} of tiga's"
    yield f"  executables before {before} and after {pairs.cache_info.compiled}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--molecules", type=int, default=64)
    parser.add_argument("--atoms", type=int, default=30)
    parser.add_argument("--degree", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    for line in report(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
