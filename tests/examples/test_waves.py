"""The example on shallow water: as in plain torch; water is kept, and stays flat where it is."""

import torch
import waves

WATER = waves.cells(6)
GRAPH = WATER.graph


def plain(water, height, steps):
    """The solver with its faces in plain torch."""
    source, target = water.edge_index
    flow, count = torch.zeros_like(water.centre), len(water.area)
    open_side = torch.zeros_like(water.centre).index_add(0, target, water.side)

    class Cell:
        area = water.area

        def __init__(self, end=slice(None)):
            self.height, self.flow = height[end], flow[end]
            self.open_side = open_side

    class Face:
        side = water.side

    step = waves.Step()
    for _ in range(steps):
        sent = step.edge(Cell(source), Cell(target), Face)
        gained = torch.zeros(count, 3, dtype=sent.dtype).index_add(0, target, sent)
        height, flow = step.node(Cell(), gained, 4e-3)
    return height


def test_heights_and_their_slope_are_those_of_plain_torch():
    place = torch.tensor([0.4, 0.6], dtype=torch.float64, requires_grad=True)
    start = waves.bump(WATER, place)
    found = waves.simulate(WATER, GRAPH, start, steps=8)[-1]
    wanted = plain(WATER, start, 8)
    torch.testing.assert_close(found, wanted)
    slopes = (
        torch.autograd.grad(h.square().sum(), place, retain_graph=True) for h in (found, wanted)
    )
    torch.testing.assert_close(*slopes)


def test_water_is_kept_and_rests():
    start = waves.bump(WATER, torch.tensor([0.5, 0.5]).double())
    heights = waves.simulate(WATER, GRAPH, start, steps=20)
    volume = (heights * WATER.area).sum(1)
    torch.testing.assert_close(volume, (start * WATER.area).sum().expand(5))
    assert (heights[-1] - start).abs().max() > 0.01
    flat = waves.simulate(WATER, GRAPH, torch.ones_like(WATER.area), steps=8)
    torch.testing.assert_close(flat, torch.ones_like(flat))
