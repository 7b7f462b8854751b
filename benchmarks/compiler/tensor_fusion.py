"""Time `(x * v + c).sum(1)` and its relatives on native tensors against torch and numpy.

    python -m benchmarks.compiler.tensor_fusion --rows 4096 --cols 1024 --torch-compile

Every time is until the result is ready; the first compiled call is reported apart. Sums of fused
kernels add in lanes and blocks (`relaxed_math`); `--strict` adds element after element.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tiga as tg

Build = Callable[..., Any]
DTYPES = ("float32", "float64", "complex64", "complex128")


def _bsum(m: Any, x: Any, v: Any, c: Any) -> Any:
    return (x * v + c).sum(1)


def _arithmetic(m: Any, x: Any) -> Any:
    return ((x * 2.0 + 1.0) * x - 3.0) / 2.5 + x


def _tanh(m: Any, x: Any) -> Any:
    return m.tanh(m.tanh(m.tanh(x) * 1.5) + 0.5) * 2.0


def _total(m: Any, x: Any) -> Any:
    return x.sum()


def best(call: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs in milliseconds, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def _native(
    build: Build, arrays: Sequence[np.ndarray], repeats: int, strict: bool
) -> dict[str, Any]:
    tensors = [tg.from_numpy(array) for array in arrays]
    start = time.perf_counter()
    first = build(tg, *tensors).realize(strict=strict)
    cold = (time.perf_counter() - start) * 1e3
    found = {
        "tiga_ms": best(lambda: build(tg, *tensors).realize(strict=strict), repeats),
        "tiga_first_call_ms": cold,
        "tiga_compile_ms": first.execution.get("compile_ms", 0.0),
        "backend": first.execution["backend"],
        "relaxed_math": first.execution.get("relaxed_math", False),
    }
    run = build(tg, *tensors).prepare()
    return {**found, "tiga_prepared_ms": best(run, repeats)}


def _torch(build: Build, arrays: Sequence[np.ndarray], repeats: int, compiled: bool) -> dict:
    try:
        import torch
    except ImportError:
        return {}
    tensors = [torch.from_numpy(array) for array in arrays]
    found = {"torch_eager_ms": best(lambda: build(torch, *tensors), repeats)}
    if compiled:
        function = torch.compile(lambda *given: build(torch, *given), dynamic=False)
        start = time.perf_counter()
        function(*tensors)
        found["torch_compile_first_call_ms"] = (time.perf_counter() - start) * 1e3
        found["torch_compile_ms"] = best(lambda: function(*tensors), repeats)
    return found


def measure(
    name: str,
    build: Build,
    arrays: Sequence[np.ndarray],
    repeats: int,
    compiled: bool,
    strict: bool = False,
) -> dict[str, Any]:
    """One case: how long each library takes, and whether the values agree."""
    with np.errstate(all="ignore"):
        want = build(np, *arrays)
        numpy_ms = best(lambda: build(np, *arrays), repeats)
    native = _native(build, arrays, repeats, strict)
    got = build(tg, *(tg.from_numpy(array) for array in arrays)).numpy()
    scale = float(np.max(np.abs(want))) or 1.0
    result = {
        "case": name,
        "dtype": str(arrays[0].dtype),
        "shape": list(arrays[0].shape),
        **native,
        **_torch(build, arrays, repeats, compiled),
        "numpy_ms": numpy_ms,
        "max_error": float(np.max(np.abs(got - want))) / scale,
    }
    peer = result.get("torch_compile_ms") or result.get("torch_eager_ms") or numpy_ms
    return {**result, "times_faster": peer / result["tiga_ms"]}


def _random(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        array = array + 1j * rng.standard_normal(shape)
    return array.astype(dtype)


def layer_norm(rows: int, columns: int, repeats: int) -> dict[str, Any]:
    """Forward and backward of a layer norm against torch's own."""
    import torch

    from tiga.frontends.tensor.evaluate import realize_all

    arrays = [_random((rows, columns), "float32"), np.ones(columns, np.float32),
              np.zeros(columns, np.float32)]  # fmt: skip
    cotangent = _random((rows, columns), "float32", seed=2)
    x, w, b = (tg.from_numpy(a).requires_grad_() for a in arrays)
    g = tg.from_numpy(cotangent)
    tx, tw, tb = (torch.from_numpy(a).requires_grad_() for a in arrays)
    tg_ = torch.from_numpy(cotangent)

    def ours() -> Any:
        y = tg.layer_norm(x, columns, w, b)
        found = tg.autograd.grad(y, (x, w, b), grad_output=g)
        realize_all([y, *found])
        return found

    def theirs() -> Any:
        y = torch.nn.functional.layer_norm(tx, (columns,), tw, tb)
        return torch.autograd.grad(y, (tx, tw, tb), tg_)

    start = time.perf_counter()
    values = ours()
    cold = (time.perf_counter() - start) * 1e3
    error = max(
        float(np.max(np.abs(a.numpy() - b.numpy())) / np.max(np.abs(b.numpy())))
        for a, b in zip(values, theirs(), strict=True)
    )
    tiga_ms, torch_ms = best(ours, repeats), best(theirs, repeats)
    return {
        "case": "layer_norm forward and backward", "shape": [rows, columns], "tiga_ms": tiga_ms,
        "tiga_first_call_ms": cold, "torch_eager_ms": torch_ms, "max_error": error,
        "times_faster": torch_ms / tiga_ms,
    }  # fmt: skip


def small(repeats: int) -> dict[str, Any]:
    """A six-op program on 8 floats: from building to value, and through `prepare`."""
    a, b = tg.arange(8, dtype=tg.float32), tg.ones(8)

    def build() -> Any:
        return ((a * b + 2.0) - b) * a / b + a

    def each(call: Callable[[], Any]) -> float:
        return best(lambda: [call() for _ in range(1000)], repeats)

    return {
        "case": "six ops on 8 floats",
        "build_to_value_us": each(lambda: build().realize()),
        "prepared_us": each(build().prepare()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--strict", action="store_true", help="add element after element")
    parser.add_argument("--torch-compile", action="store_true", help="also time torch.compile")
    parser.add_argument("--all", action="store_true", help="the other cases of the issue too")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args(arguments)
    x = _random((options.rows, options.cols), options.dtype)
    v, c = _random((options.cols,), options.dtype), _random((options.cols,), options.dtype)
    peers, repeats = options.torch_compile, options.repeats
    strict = options.strict
    cases = [measure("(x * v + c).sum(1)", _bsum, (x, v, c), repeats, peers, strict)]
    if options.all:
        flat = _random((4_000_000,), "float32")
        cases.append(measure("six ops, arithmetic", _arithmetic, (flat,), repeats, peers))
        cases.append(measure("six ops, tanh", _tanh, (flat,), repeats, peers))
        cases.append(measure("sum", _total, (_random((16_000_000,), "float32"),), repeats, peers))
        cases.append(layer_norm(options.rows, options.cols, repeats))
        cases.append(small(repeats))
    print(json.dumps({"strict": options.strict, "cases": cases}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
