"""Random graphs in CSR form (rows are destinations), the same for the same arguments."""

from dataclasses import dataclass

import numpy as np

SEED = 7


@dataclass(frozen=True)
class Csr:
    """Edges of `num_nodes` nodes: `row_ptr` int64 [N+1], `source` int64 [E]."""

    num_nodes: int
    row_ptr: np.ndarray
    source: np.ndarray

    @property
    def num_edges(self) -> int:
        return len(self.source)

    @property
    def destination(self) -> np.ndarray:
        """The destination of each edge, int64 [E], ascending."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.row_ptr))


def _from_degrees(degrees: np.ndarray, rng: np.random.Generator) -> Csr:
    row_ptr = np.zeros(len(degrees) + 1, np.int64)
    np.cumsum(degrees, out=row_ptr[1:])
    source = rng.integers(0, len(degrees), row_ptr[-1], dtype=np.int64)
    return Csr(len(degrees), row_ptr, source)


def regular(num_nodes: int, degree: int) -> Csr:
    """Every node hears from `degree` random nodes."""
    return _from_degrees(np.full(num_nodes, degree), np.random.default_rng(SEED))


def uniform(num_nodes: int, degree: int) -> Csr:
    """Both ends of every edge are random: degrees are binomial around `degree`."""
    rng = np.random.default_rng(SEED)
    ends = rng.integers(0, num_nodes, num_nodes * degree)
    return _from_degrees(np.bincount(ends, minlength=num_nodes), rng)


def heavy_tailed(num_nodes: int, degree: int) -> Csr:
    """Degrees follow a power law from 1 to hubs that hear from 1% of all nodes (≥ 10 × mean).

    The exponent is the one that gives the mean `degree` (0.8 for N=200k and degree 16).
    """
    rng = np.random.default_rng(SEED)
    largest = max(num_nodes // 100, 10 * degree)
    quantiles = (np.arange(num_nodes) + 0.5) / num_nodes
    low, high = 0.01, 5.0
    for _ in range(60):
        exponent = (low + high) / 2
        degrees = _truncated_power_law(quantiles, exponent, largest)
        low, high = (exponent, high) if degrees.mean() > degree else (low, exponent)
    whole = np.floor(degrees).astype(np.int64)
    missing = num_nodes * degree - int(whole.sum())
    whole[rng.permutation(num_nodes)[:missing]] += 1
    rng.shuffle(whole)
    return _from_degrees(whole, rng)


def _truncated_power_law(quantiles: np.ndarray, exponent: float, largest: int) -> np.ndarray:
    tail = largest**-exponent
    return (1 - quantiles * (1 - tail)) ** (-1 / exponent)


GRAPHS = {"regular": regular, "heavy_tailed": heavy_tailed, "uniform": uniform}
