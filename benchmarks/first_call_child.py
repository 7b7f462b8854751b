"""Seconds of the first call in a fresh process, and of a further program's first call.

torch is imported and the data is made before the clock starts.
"""

import json
import time
from typing import Any

import torch

import tiga as tg
from benchmarks.graphs import regular
from benchmarks.programs import EdgeDifference, tiga_graph


class Gated(tg.MessagePassing):
    """Another program, so that nothing compiled for the first one serves it."""

    reducer = tg.mean()

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return torch.sigmoid(dst.x) * src.x + edge.a


def main() -> None:
    graph = regular(1000, 16)
    relation = tiga_graph(graph)
    x, a = torch.randn(graph.num_nodes, 64), torch.randn(graph.num_edges, 64)
    start = time.perf_counter()
    EdgeDifference(tg.sum())(graph=relation, ndata={"x": x})
    first = time.perf_counter()
    Gated()(graph=relation, src={"x": x}, dst={"x": x}, edge={"a": a})
    further = time.perf_counter()
    print(json.dumps({"first": first - start, "further": further - first}))


if __name__ == "__main__":
    main()
