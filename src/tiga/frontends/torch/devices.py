"""Where calls run. What runs them on a GPU is imported when one is first met."""

import torch

from tiga.relations import Graph

_CPU = torch.device("cpu")


def device_of(graph: Graph) -> torch.device:
    """Where a graph's index arrays lie, and with them the fields and results of a call; where a
    graph in a file runs."""
    if graph.paged:
        return torch.device(graph.device)
    place = graph.input.place
    return _CPU if place is None else place


def on_gpu(device: torch.device) -> bool:
    """Whether calls on graphs of this device run on a GPU."""
    return device.type == "cuda"


def may_stage(graph: Graph, device: torch.device) -> bool:
    """Whether a field on this device serves a graph that is elsewhere: pages of a graph in a file
    take what they need of it."""
    return graph.paged and device.type == "cpu"
