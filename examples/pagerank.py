"""PageRank (Page et al., 1999): where a walker is who follows edges and at times starts anew."""

import torch
from graphs import digits

import tiga as tg


class Step(tg.MessagePassing):
    """rank_i ← damping · Σ_j rank_j / out_j + restart."""

    reducer = tg.sum()

    def __init__(self, damping: float = 0.85) -> None:
        self.damping = damping

    def edge(self, src, dst, edge):
        return src.rank * src.share

    def node(self, dst, aggregate, restart):
        return self.damping * aggregate + restart


def pagerank(graph: tg.Graph, damping: float = 0.85, tolerance: float = 1e-12) -> torch.Tensor:
    """The rank of every node, f64 [N]; they sum to 1. Nodes that lead nowhere lead everywhere."""
    step, nodes = Step(damping), graph.num_dst
    outgoing = torch.as_tensor(graph.transpose().row_ptr).diff().double()
    share, dead_end = 1 / outgoing.clamp(min=1), outgoing == 0
    rank = torch.full((nodes,), 1 / nodes, dtype=torch.float64)
    change = 1.0
    while change > tolerance:
        restart = (1 - damping + damping * rank[dead_end].sum()) / nodes
        following = step(graph=graph, src={"rank": rank, "share": share}, restart=restart)
        change, rank = (following - rank).abs().sum().item(), following
    return rank


def main() -> torch.Tensor:
    sample = digits()
    rank = pagerank(sample.graph)
    best = rank.topk(3)
    print("PageRank on digits: the most central images are", end=" ")
    print(", ".join(f"no. {i} (a {sample.labels[i]})" for i in best.indices))
    return rank


if __name__ == "__main__":
    main()
