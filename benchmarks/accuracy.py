"""How far results are from exact ones, beside torch's: sums, functions and losses.

    python -m benchmarks.accuracy

Errors are in roundings of the dtype (2^-24 for float32), of sums relative to the sum of absolute
values, of functions in units in the last place; `ratio` is ours to torch's, where torch's is one
rounding at least. Takes some ten seconds.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import tiga as tg

ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

TERMS: dict[str, Callable[[int], np.ndarray]] = {
    "equal": lambda n: np.full(n, 0.1),
    "offset": lambda n: 1000 + np.random.default_rng(1).standard_normal(n),
    "any size": lambda n: np.exp(3 * np.random.default_rng(1).standard_normal(n)),
}

LAYOUTS: dict[str, tuple[tuple[int, ...], int]] = {
    "10M": ((10_000_000,), 0),
    "4 x 1M, rows": ((4, 1_000_000), 1),
    "1M x 10, columns": ((1_000_000, 10), 0),
    "8 x 50k x 4, middle": ((8, 50_000, 4), 1),
    "1000 x 1000, rows": ((1000, 1000), 1),
}

Pair = tuple[Callable[..., Any], Callable[..., torch.Tensor]]

REDUCTIONS: dict[str, Pair] = {
    "sum": (lambda x, a: tg.sum(x, axis=a), lambda x, a: x.sum(a)),
    "var": (lambda x, a: tg.var(x, axis=a), lambda x, a: x.var(a, correction=0)),
    "norm": (lambda x, a: tg.norm(x, axis=a), lambda x, a: torch.linalg.vector_norm(x, dim=a)),
    "logsumexp": (lambda x, a: tg.logsumexp(x, axis=a), lambda x, a: x.logsumexp(a)),
}

FUNCTIONS = ("exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan",
             "tanh", "asinh", "atanh", "erf")  # fmt: skip


def _native(x: torch.Tensor) -> Any:
    return tg.from_torch(x.contiguous())


def _doubles(value: Any) -> torch.Tensor:
    return torch.from_numpy(value.astype(tg.float64).numpy())


def reductions() -> Iterator[tuple[str, float, float]]:
    """Case, our error, torch's: the largest over all rows."""
    for layout, (shape, axis) in LAYOUTS.items():
        for kind, make in TERMS.items():
            x = torch.from_numpy(make(int(np.prod(shape))).reshape(shape)).float()
            for name, (ours, theirs) in REDUCTIONS.items():
                if name == "var" and kind == "equal":
                    continue  # it is 0
                want = theirs(x.double(), axis)
                found = (_doubles(ours(_native(x), axis)), theirs(x, axis).double())
                errors = [float(((f - want) / want).abs().max()) / 2.0**-24 for f in found]
                yield f"{name}, {layout}, {kind}", errors[0], errors[1]


def functions() -> Iterator[tuple[str, float, float]]:
    """The same over numbers of every exponent, in units in the last place."""
    bits = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32)
    x = torch.from_numpy(bits.view(np.float32))
    for name in FUNCTIONS:
        function = getattr(torch, name)
        want = function(x.double())
        unit = torch.from_numpy(np.spacing(np.abs(want.float().numpy())).astype(np.float64))
        found = (_doubles(getattr(tg, name)(_native(x))), function(x).double())
        usual = torch.isfinite(want.float()) & (want.abs() >= 2.0**-126)
        errors = [float(((f - want) / unit).abs()[usual].max()) for f in found]
        yield name, errors[0], errors[1]


def losses() -> Iterator[tuple[str, float, float]]:
    """Cross entropy of logits of any size, and its gradient."""
    random = np.random.default_rng(2)
    classes = torch.from_numpy(random.integers(0, 50, 200))
    for dtype, rounding in ROUNDING.items():
        for size in (1.0, 100.0, 1e4):
            given = torch.from_numpy(size * random.standard_normal((200, 50))).to(dtype)
            exact, plain = given.double().requires_grad_(), given.clone().requires_grad_()
            ours = _native(given).requires_grad_()
            want = torch.nn.functional.cross_entropy(exact, classes)
            torch_s = torch.nn.functional.cross_entropy(plain, classes)
            mine = tg.cross_entropy(ours, _native(classes))
            (slope,) = torch.autograd.grad(want, exact)
            pairs = {
                "loss": (want, _doubles(mine), torch_s),
                "gradient": (slope, _doubles(tg.autograd.grad(mine, ours)),
                             torch.autograd.grad(torch_s, plain)[0]),
            }  # fmt: skip
            for name, (right, *found) in pairs.items():
                scale = float(right.detach().abs().max()) * rounding
                errors = [float((f.detach() - right.detach()).abs().max()) / scale for f in found]
                yield f"cross entropy, {name}, {dtype}, logits of {size:g}", errors[0], errors[1]


def main() -> int:
    """Print all cases as one table."""
    for title, cases in (("sums", reductions), ("functions", functions), ("losses", losses)):
        print(f"\n| {title} | ours | torch | ratio |\n|---|---|---|---|")
        for case, ours, theirs in cases():
            print(f"| {case} | {ours:.2g} | {theirs:.2g} | {ours / max(theirs, 1.0):.2g} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
