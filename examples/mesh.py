"""Heat on an unstructured mesh: an explicit solver whose conductivity is found by its gradients."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import Delaunay

import tiga as tg


@dataclass(frozen=True)
class Mesh:
    """Points of the unit square, f64 [N, 2], joined by triangles: `edge_index` i64 [2, E], both
    ways, `weight` f64 [E] by which linear elements couple two points, `area` f64 [N] of each."""

    position: torch.Tensor
    edge_index: torch.Tensor
    weight: torch.Tensor
    area: torch.Tensor

    @property
    def graph(self) -> tg.Graph:
        return tg.Graph.from_edge_index(self.edge_index, num_nodes=len(self.area))


def square(side: int = 14) -> Mesh:
    """A grid of side × side points, shaken inside the square, and triangulated."""
    grid = np.stack(np.meshgrid(*2 * [np.arange(side)]), axis=-1).reshape(-1, 2)
    inside = ((grid > 0) & (grid < side - 1)).all(axis=1, keepdims=True)
    shaken = grid + inside * np.random.default_rng(0).uniform(-0.2, 0.2, grid.shape)
    points = shaken / (side - 1)
    triangles = Delaunay(points).simplices
    coupling = np.zeros((len(points), len(points)))
    area = np.zeros(len(points))
    for corner in range(3):
        a, b, c = (triangles[:, (corner + k) % 3] for k in range(3))
        one, other = points[b] - points[a], points[c] - points[a]
        double = np.abs(one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0])
        np.add.at(area, a, double / 6)
        half_cotangent = (one * other).sum(1) / double / 2
        np.add.at(coupling, (b, c), half_cotangent)
        np.add.at(coupling, (c, b), half_cotangent)
    source, target = np.nonzero(coupling)
    edges, weight = np.stack([source, target]), coupling[source, target]
    return Mesh(*map(torch.from_numpy, (points, edges, weight, area)))


class Flow(tg.MessagePassing):
    """One step of time: heat flows along every edge, at the mean conductivity of its ends.

    Gives the flow along each edge [E, S] and the next temperatures [N, S], of S experiments.
    """

    def __init__(self, step: float) -> None:
        self.step = step

    def edge(self, src, dst, edge):
        conductivity = 0.5 * (src.conductivity + dst.conductivity)
        flow = (edge.weight * conductivity)[:, None] * (src.heat - dst.heat)
        return tg.each()(flow), tg.sum()(flow)

    def node(self, dst, aggregate):
        flow, gained = aggregate
        return flow, dst.heat + self.step * gained / dst.area[:, None]


def simulate(
    mesh: Mesh, graph: tg.Graph, conductivity: torch.Tensor, heat: torch.Tensor, steps: int = 30
) -> tuple[torch.Tensor, torch.Tensor]:
    """Flows along edges in the last step [E, S], and temperatures after it [N, S]."""
    move = Flow(step=2e-4)
    for _ in range(steps):
        nodes = {"heat": heat, "area": mesh.area, "conductivity": conductivity}
        flow, heat = move(graph=graph, ndata=nodes, edge={"weight": mesh.weight})
    return flow, heat


def experiments(mesh: Mesh, count: int = 6) -> torch.Tensor:
    """Temperatures to start with [N, S]: a warm spot in each experiment."""
    centres = torch.rand(count, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.exp(-20 * torch.cdist(mesh.position, centres).square())


def main() -> tuple[float, float]:
    """Find where the mesh conducts well from what was measured; errors before and after."""
    mesh = square()
    graph, start = mesh.graph, experiments(mesh)
    x, y = mesh.position.T
    truth = 1.0 + (torch.hypot(x - 0.6, y - 0.4) < 0.25).double()
    _, measured = simulate(mesh, graph, truth, start)
    guess = torch.zeros_like(truth, requires_grad=True)
    optimiser = torch.optim.Adam([guess], lr=0.3)
    errors = []
    for _ in range(60):
        optimiser.zero_grad()
        conductivity = 1.0 + torch.sigmoid(guess)
        _, heat = simulate(mesh, graph, conductivity, start)
        (1e4 * (heat - measured).square().mean()).backward()
        optimiser.step()
        errors.append((conductivity.detach() - truth).square().mean().sqrt().item())
    print(f"Conductivity of a mesh: error from {errors[0]:.2f} to {errors[-1]:.2f}")
    return errors[0], errors[-1]


if __name__ == "__main__":
    main()
