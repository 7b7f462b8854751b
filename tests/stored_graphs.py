"""A graph in a file whose sources are near their rows, anywhere, or gather at a hub."""

from pathlib import Path

import numpy as np

import tiga as tg

NODES, EDGES, WIDTH = 3000, 60_000, 8
BUDGETS = ["700KiB", "1MiB", "3MiB", "64MiB"]
"""Less and less goes by pages."""


def stored_graph(kind: str, path: Path) -> tg.Graph:
    """The graph of a kind ("random", "local" or "hubs"), opened: `x` at nodes, `w` at edges."""
    rng = np.random.default_rng(5)
    dst, src = rng.integers(0, NODES, (2, EDGES))
    if kind == "local":
        src = (dst + rng.integers(0, 40, EDGES)) % NODES
    if kind == "hubs":
        dst[:15_000] = 7
    fields = {
        "src": {"x": rng.random((NODES, WIDTH), np.float32)},
        "edge": {"w": rng.random(EDGES, np.float32)},
    }
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    return tg.Graph.open(graph.save(path, fields))
