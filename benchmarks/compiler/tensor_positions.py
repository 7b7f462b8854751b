"""Time reading at positions, scans, products, positions of extrema and complex functions.

    python -m benchmarks.compiler.tensor_positions

Native tensors against numpy and torch's eager functions, as `tensor_fusion` times its cases.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import tiga as tg
from benchmarks.compiler.tensor_fusion import Build, measure


def _rows(m: Any, x: Any, index: Any) -> Any:
    return x[index] * 2.0


def _running(m: Any, x: Any) -> Any:
    return m.cumsum(x * 2.0, 1)


def _product(m: Any, x: Any) -> Any:
    return m.prod(x, axis=1)


def _best(m: Any, x: Any) -> Any:
    return m.argmax(x, axis=1)


def _logarithm(m: Any, x: Any) -> Any:
    return m.log(x)


def _hyperbolic(m: Any, x: Any) -> Any:
    return m.tanh(x)


def _best_of_all(m: Any, x: Any) -> Any:
    return m.argmax(x)


def _counted(m: Any, x: Any, index: Any) -> Any:
    """Single numbers added up at few positions."""
    if isinstance(x, tg.Tensor):
        return m.scatter_add(x, index, FEW)
    total = m.zeros(FEW, dtype=x.dtype)
    if isinstance(x, np.ndarray):
        np.add.at(total, index, x)
        return total
    return total.index_add_(0, index, x)


FEW = 10
"""Targets that many numbers are added to."""


def _added(m: Any, x: Any, index: Any) -> Any:
    """Rows added up at positions: the adjoint of reading them."""
    if isinstance(x, tg.Tensor):
        return m.scatter_add(x, index, 1000)
    total = m.zeros((1000, x.shape[1]), dtype=x.dtype)
    if isinstance(x, np.ndarray):
        np.add.at(total, index, x)
        return total
    return total.index_add_(0, index, x)


def cases(repeats: int, rows: int, columns: int) -> list[dict[str, Any]]:
    """Every case, on arrays of `rows` by `columns`."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    near = rng.uniform(0.99, 1.01, (rows, columns)).astype(np.float32)
    z = (x + 1j * x[::-1]).astype(np.complex64)
    index = rng.integers(0, rows, 2 * rows)
    groups = rng.integers(0, 1000, rows)
    few = rng.integers(0, FEW, x.size)
    found: list[tuple[str, Build, tuple[np.ndarray, ...]]] = [
        ("rows at positions", _rows, (x, index)),
        ("rows added at positions", _added, (x, groups)),
        ("running sums of rows", _running, (x,)),
        ("products of rows", _product, (near,)),
        ("argmax of rows", _best, (x,)),
        ("argmax of everything", _best_of_all, (x,)),
        ("numbers added at few positions", _counted, (x.reshape(-1), few)),
        ("complex logarithm", _logarithm, (z,)),
        ("complex tanh", _hyperbolic, (z,)),
    ]
    return [measure(name, build, arrays, repeats, False) for name, build, arrays in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args(arguments)
    print(json.dumps(cases(options.repeats, options.rows, options.cols), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
