"""Hypothesis strategies shared by all tests."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Coo = tuple[np.ndarray, np.ndarray, int, int]
"""src, dst (int64), num_src, num_dst."""


def _uniform(rng: np.random.Generator, count: int, num_edges: int) -> np.ndarray:
    return rng.integers(0, count, num_edges)


def _one(rng: np.random.Generator, count: int, num_edges: int) -> np.ndarray:
    return np.full(num_edges, rng.integers(0, count))


def _skewed(rng: np.random.Generator, count: int, num_edges: int) -> np.ndarray:
    """A hub takes about half of the edges; the rest fall off fast."""
    return np.minimum(rng.geometric(0.5, num_edges) - 1, count - 1)


def _sparse(rng: np.random.Generator, count: int, num_edges: int) -> np.ndarray:
    """Most nodes are isolated, the last one among them where there are two."""
    return rng.integers(0, max(count // 3, 1), num_edges)


ENDS = (_uniform, _one, _skewed, _sparse)
"""How one end of the edges is spread over its nodes."""


@st.composite
def coo(draw: DrawFn, max_nodes: int, max_edges: int) -> Coo:
    num_src = draw(st.integers(0, max_nodes), label="num_src")
    same = draw(st.booleans(), label="one node set")
    num_dst = num_src if same else draw(st.integers(0, max_nodes), label="num_dst")
    most = max_edges if num_src and num_dst else 0
    num_edges = draw(st.integers(0, most), label="num_edges")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    spread_src, spread_dst = draw(st.sampled_from(ENDS)), draw(st.sampled_from(ENDS))
    src = spread_src(rng, max(num_src, 1), num_edges)
    dst = spread_dst(rng, max(num_dst, 1), num_edges)
    if draw(st.booleans(), label="parallel edges") and num_edges:
        twin = rng.integers(0, num_edges, num_edges)
        src, dst = np.where(rng.random(num_edges) < 0.5, (src[twin], dst[twin]), (src, dst))
    return src.astype(np.int64), dst.astype(np.int64), num_src, num_dst


def graphs(max_nodes: int = 40, max_edges: int = 200) -> SearchStrategy[Coo]:
    """Edges in any order as `(src, dst, num_src, num_dst)`: int64 arrays and two counts.

    Among them: no nodes, no edges, one row, isolated nodes, parallel edges, self-loops, hubs,
    two node sets of different size. Nodes and edges are bounded by the arguments; a hub beyond
    `HUB_DEGREE` needs `max_edges` above that.
    """
    return coo(max_nodes, max_edges)
