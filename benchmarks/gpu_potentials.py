"""Training on forces on one GPU: energies, forces, and the gradient of a loss of both.

    python -m benchmarks.gpu_potentials [--models schnet,painn] [--systems N] [--atoms N]
        [--new] [--skip PEER] [--profile]

Potentials of two layers (`benchmarks.potentials`) on systems of atoms side by side. Their peers are
the same models with messages in plain torch, eager and as one compiled graph (forces and gradients
by `torch.func.grad` inside, as compiled gradients are not differentiated again). Loss and gradients
of each are compared with float64 first. Then all take turns: given are the least milliseconds of a
step with the device's work, what it takes on the host until all is launched, and the extra peak of
memory. `--new` also times a step that makes the graph anew, `--profile` adds our longest kernels.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import tiga as tg
from benchmarks.gpu_layers import extra_peak, kernel_times, largest_error
from benchmarks.potentials import PaiNNLayer, Potential, SchNetLayer

LAYERS = {"schnet": SchNetLayer, "painn": PaiNNLayer}
CUTOFF, TOLERANCE = 5.0, 2e-3

Step = Callable[[], list[torch.Tensor]]


@dataclass(frozen=True)
class Atoms:
    """Systems side by side: `edges` [2, E] (neighbour, centre) in order of centres, `kind` and
    `position` of atoms."""

    edges: torch.Tensor
    kind: torch.Tensor
    position: torch.Tensor

    @staticmethod
    def of(systems: int, each: int, degree: int) -> "Atoms":
        """Cubes of atoms at random places, so dense that one inside has about `degree` others
        within the cutoff."""
        side = (each * 4 / 3 * math.pi * CUTOFF**3 / degree) ** (1 / 3)
        position = side * torch.rand(systems * each, 3)
        batch = torch.arange(systems).repeat_interleave(each)
        source, target = tg.radius_graph(position, CUTOFF, batch=batch).graph.coo()
        return Atoms(torch.stack([source, target]), torch.randint(8, (len(batch),)), position)

    def to(self, device: str) -> "Atoms":
        return Atoms(*(value.to(device) for value in vars(self).values()))

    def graph(self) -> tg.Graph:
        return tg.Graph.from_edge_index(self.edges, num_nodes=len(self.kind))


class Fields:
    """What a kernel's `edge` reads at one end of all edges."""

    def __init__(self, fields: dict[str, torch.Tensor], index: torch.Tensor) -> None:
        for name, value in fields.items():
            setattr(self, name, value[index])


class PlainMessages(nn.Module):
    """A kernel's messages and their sum, by torch alone; its `graph` is the edges."""

    def __init__(self, kernel: tg.MessagePassing) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, graph: torch.Tensor, ndata: dict[str, torch.Tensor]) -> torch.Tensor:
        source, target = graph[0], graph[1]
        src, dst = Fields(ndata, source), Fields(ndata, target)
        messages = self.kernel.edge(src, dst, None)
        shape = len(ndata["r"]), *messages.shape[1:]
        return messages.new_zeros(shape).index_add(0, target, messages)


def plain(model: Potential) -> Potential:
    """The same potential, weights included, with messages by torch alone."""
    found = copy.deepcopy(model)
    for layer in found.layers:
        layer.along = PlainMessages(layer.along)
    return found


class Energies(nn.Module):
    """A potential without its forces."""

    def __init__(self, model: Potential) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.model.energy_of(*given)


def loss_of(energy: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
    return energy.square() / len(force) ** 2 + force.square().mean()


def step(model: Potential, graph: Callable[[], Any], atoms: Atoms) -> list[torch.Tensor]:
    """The loss, forces, and the gradient of every weight."""
    energy, force = model(graph(), atoms.kind, atoms.position)
    loss = loss_of(energy, force)
    return [loss.detach(), force.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def compiled(model: Potential, atoms: Atoms) -> Step:
    """The same as one graph of torch's."""
    weights = {f"model.{name}": value.detach() for name, value in model.named_parameters()}
    energies = Energies(model)

    def energy_of(position: torch.Tensor, weights: Any) -> torch.Tensor:
        energy: torch.Tensor = torch.func.functional_call(
            energies, weights, (atoms.edges, atoms.kind, position)
        )
        return energy

    def loss(weights: Any) -> tuple[torch.Tensor, torch.Tensor]:
        slope, energy = torch.func.grad_and_value(energy_of)(atoms.position, weights)
        return loss_of(energy, -slope), -slope

    def whole(weights: Any) -> Any:
        return torch.func.grad_and_value(loss, has_aux=True)(weights)

    run = torch.compile(whole, fullgraph=True)

    def call() -> list[torch.Tensor]:
        gradients, (value, force) = run(weights)
        return [value, force, *gradients.values()]

    return call


def steps(model: Potential, atoms: Atoms, skip: list[str], new: bool) -> dict[str, Step]:
    """What takes part, by name."""
    graph, peer = atoms.graph(), plain(model)
    found: dict[str, Step] = {"tiga": partial(step, model, lambda: graph, atoms)}
    if new:
        found["tiga, new graph"] = partial(step, model, atoms.graph, atoms)
    found["torch"] = partial(step, peer, lambda: atoms.edges, atoms)
    found["torch.compile"] = compiled(peer, atoms)
    return {name: one for name, one in found.items() if name not in skip}


def reference(model: Potential, atoms: Atoms) -> list[torch.Tensor]:
    """Loss, forces and gradients by torch in float64."""
    wide = Atoms(atoms.edges, atoms.kind, atoms.position.double())
    return step(plain(model).double(), lambda: atoms.edges, wide)


def timed(call: Step) -> tuple[float, float]:
    """Milliseconds until all is launched, and until it is done."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    launched = time.perf_counter() - start
    torch.cuda.synchronize()
    return 1e3 * launched, 1e3 * (time.perf_counter() - start)


def take_turns(everyone: dict[str, Step], seconds: float) -> dict[str, tuple[float, float]]:
    """The least of both, each."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in everyone}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(times.values()):
        for name, call in everyone.items():
            times[name].append(timed(call))
    return {name: (min(t[0] for t in found), min(t[1] for t in found))
            for name, found in times.items()}  # fmt: skip


def rows(name: str, options: argparse.Namespace) -> Iterator[str]:
    """The lines of one model."""
    torch.manual_seed(0)
    atoms = Atoms.of(options.systems, options.atoms, options.degree).to("cuda")
    model = Potential(LAYERS[name]).to("cuda")
    yield f"{name}: {len(atoms.kind)} atoms, {atoms.edges.shape[1]} edges"
    wanted, errors, ready = reference(model, atoms), {}, {}
    for who, call in steps(model, atoms, options.skip, options.new).items():
        start = time.perf_counter()
        try:
            errors[who] = largest_error(call(), wanted)
        except Exception as failure:  # the others are measured all the same
            yield f"  {who}: {type(failure).__name__}: {str(failure)[:300]}"
            continue
        yield f"  {who}: first step {time.perf_counter() - start:.1f} s, error {errors[who]:.1e}"
        if errors[who] < TOLERANCE:
            ready[who] = call
    del wanted
    for call in ready.values():
        call()
    for who, (launched, done) in take_turns(ready, options.seconds).items():
        peak = extra_peak(ready[who])
        yield f"  {who:16s} {done:8.2f} ms, launched in {launched:6.2f}, extra {peak:6.0f} MiB"
    if options.profile:
        yield from (f"    {line}" for line in kernel_times(ready["tiga"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda names: names.split(","), default=list(LAYERS))
    parser.add_argument("--systems", type=int, default=800)
    parser.add_argument("--atoms", type=int, default=125, help="of a system")
    parser.add_argument("--degree", type=int, default=40, help="neighbours away from the surface")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for name in options.models:
        for line in rows(name, options):
            print(line, flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
