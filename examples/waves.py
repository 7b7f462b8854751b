"""Shallow water on triangles: a finite-volume solver whose gradients find the origin of a wave."""

from dataclasses import dataclass

import numpy as np
import torch
from mesh import square
from scipy.spatial import Delaunay

import tiga as tg


@dataclass(frozen=True)
class Cells:
    """Triangles of the unit square: `centre` f64 [N, 2], `area` f64 [N], and faces from each to its
    neighbours, `edge_index` i64 [2, E], both ways, with `side` f64 [E, 2]: the face's length times
    the direction out of the cell that receives."""

    centre: torch.Tensor
    area: torch.Tensor
    edge_index: torch.Tensor
    side: torch.Tensor

    @property
    def graph(self) -> tg.Graph:
        return tg.Graph.from_edge_index(self.edge_index, num_nodes=len(self.area))


def cells(side: int = 12) -> Cells:
    """Triangles between side × side points, shaken inside the square."""
    points = square(side).position.numpy()
    found = Delaunay(points)
    corners = points[found.simplices]
    one, other = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = np.abs(one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]) / 2
    centre = corners.mean(1)
    target, opposite = np.nonzero(found.neighbors >= 0)
    source = found.neighbors[target, opposite]
    start, end = (corners[target, (opposite + k) % 3] for k in (1, 2))
    turned = np.stack([end[:, 1] - start[:, 1], start[:, 0] - end[:, 0]], 1)
    outward = np.sign((turned * (start - centre[target])).sum(1, keepdims=True))
    edges = np.stack([source, target])
    return Cells(*map(torch.from_numpy, (centre, area, edges, turned * outward)))


class Step(tg.MessagePassing):
    """One step of time, of a length that may differ from call to call: what flows through each face
    is the mean of both cells' fluxes, damped by the fastest wave there (Rusanov, 1961). Where a
    cell has no neighbour, it meets a wall. Fields: `height` [N] and `flow` [N, 2], height times
    velocity."""

    gravity = 9.81

    def edge(self, src, dst, edge):
        side = edge.side
        speeds, fluxes = [], []
        for cell in (src, dst):
            through = (cell.flow * side).sum(-1)
            velocity = through / cell.height
            pressure = 0.5 * self.gravity * cell.height.square()
            momentum = velocity[:, None] * cell.flow + pressure[:, None] * side
            fluxes.append(torch.cat([through[:, None], momentum], -1))
            length = side.norm(dim=-1)
            speeds.append(velocity.abs() + length * (self.gravity * cell.height).sqrt())
        fastest = torch.maximum(*speeds)[:, None]
        jump = torch.cat([(src.height - dst.height)[:, None], src.flow - dst.flow], -1)
        return 0.5 * (fluxes[0] + fluxes[1] - fastest * jump)

    def node(self, dst, aggregate, step):
        change = -step * aggregate / dst.area[:, None]
        # The pressure of a cell on its own faces, walls included, adds up to nothing.
        return dst.height + change[:, 0], dst.flow + change[:, 1:] + step * self.walls(dst)

    def walls(self, dst):
        """What walls push back: nothing but pressure, along the sides that no face covers."""
        return 0.5 * self.gravity * dst.height.square()[:, None] * dst.open_side / dst.area[:, None]


class Sides(tg.MessagePassing):
    """The sum of a cell's sides: 0 but at walls."""

    def edge(self, src, dst, edge):
        return edge.side


def simulate(water: Cells, graph: tg.Graph, height: torch.Tensor, steps: int, every: int = 4):
    """Heights [steps / every, N] as time goes on, from water at rest."""
    move, flow, seen = Step(), torch.zeros_like(water.centre), []
    open_side = Sides()(graph=graph, edge={"side": water.side})
    for number in range(steps):
        cell = {"height": height, "flow": flow, "area": water.area, "open_side": open_side}
        height, flow = move(graph=graph, ndata=cell, edge={"side": water.side}, step=4e-3)
        if number % every == every - 1:
            seen.append(height)
    return torch.stack(seen)


def bump(water: Cells, place: torch.Tensor) -> torch.Tensor:
    """Water of depth 1, and a tenth more around a place [2]."""
    return 1.0 + 0.1 * torch.exp(-40 * (water.centre - place).square().sum(-1))


def main() -> tuple[float, float]:
    """Find where a wave started from gauges at nine cells; distances before and after."""
    water = cells()
    graph, line = water.graph, torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    gauges = torch.cdist(torch.cartesian_prod(line, line), water.centre).argmin(1)
    truth = torch.tensor([0.68, 0.35], dtype=torch.float64)
    measured = simulate(water, graph, bump(water, truth), steps=48)[:, gauges]
    place = torch.tensor([0.55, 0.46], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([place], lr=0.01)
    distances = []
    for _ in range(40):
        optimiser.zero_grad()
        heights = simulate(water, graph, bump(water, place), steps=48)[:, gauges]
        (1e4 * (heights - measured).square().mean()).backward()
        optimiser.step()
        distances.append((place.detach() - truth).norm().item())
    print(f"A wave's origin: off by {distances[0]:.3f}, then {distances[-1]:.3f}")
    return distances[0], distances[-1]


if __name__ == "__main__":
    main()
