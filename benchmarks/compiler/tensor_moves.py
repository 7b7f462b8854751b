"""Time programs that read slices and joins of their operands, against torch and numpy.

    python -m benchmarks.compiler.tensor_moves --torch-compile

Slices, padding and joins are read where they lie: each of these is one kernel. Times are until the
result is ready, as those of `benchmarks.compiler.tensor_fusion`.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import tiga as tg
from benchmarks.compiler.tensor_fusion import best, measure


def neighbours(m: Any, x: Any) -> Any:
    """Differences of neighbours."""
    return x[1:] - x[:-1]


def stencil(m: Any, x: Any) -> Any:
    """Five points of a grid."""
    return 4.0 * x[1:-1, 1:-1] - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]


def rotary(m: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """A rotary embedding: halves of every row turned against each other."""
    half = x.shape[-1] // 2
    return x * cosine + m.concat([-x[..., half:], x[..., :half]], axis=-1) * sine


def gated(m: Any, x: Any) -> Any:
    """One half of every row scaled by a function of the other."""
    half = x.shape[1] // 2
    return x[:, :half] * m.tanh(x[:, half:])


def roughness(x: Any) -> Any:
    """The sum of squared differences along both axes."""
    return ((x[1:] - x[:-1]) ** 2).sum() + ((x[:, 1:] - x[:, :-1]) ** 2).sum()


def gradient(size: int, repeats: int) -> dict[str, Any]:
    """The gradient of `roughness` against torch's own."""
    import torch

    array = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    x = tg.from_numpy(array).requires_grad_()
    t = torch.from_numpy(array).requires_grad_()
    calls = {
        "tiga_ms": lambda: tg.autograd.grad(roughness(x), x).realize(),
        "torch_eager_ms": lambda: torch.autograd.grad(roughness(t), t)[0],
    }
    error = np.abs(calls["tiga_ms"]().numpy() - calls["torch_eager_ms"]().numpy()).max()
    return {"case": "gradient of differences", "shape": [size, size], "max_error": float(error),
            **best(calls, repeats)}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="extent of the grids")
    parser.add_argument("--torch-compile", action="store_true", help="also time torch.compile")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    grid = random(options.size, options.size)
    heads, waves = random(8, options.size // 4, 8, 64), random(options.size // 4, 1, 64)
    peers, repeats = options.torch_compile, options.repeats
    cases = [
        measure("neighbours", neighbours, (random(options.size**2),), repeats, peers),
        measure("stencil", stencil, (grid,), repeats, peers),
        measure("rotary", rotary, (heads, waves, waves), repeats, peers),
        measure("gated", gated, (grid,), repeats, peers),
        gradient(options.size, repeats),
    ]
    print(json.dumps({"cases": cases}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
