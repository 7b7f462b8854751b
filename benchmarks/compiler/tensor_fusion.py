"""Time `(x * v + c).sum(1)` and its relatives on native tensors against torch and numpy.

    python -m benchmarks.compiler.tensor_fusion --rows 4096 --cols 1024 --torch-compile
    python -m benchmarks.compiler.tensor_fusion --all --torch-compile

Every time is until the result is ready: the median of several runs that take turns in an order
drawn anew each round, so each meets caches that any of the others filled; `shortest` has the
shortest of them, `alone` the median of runs that follow their own. The first compiled call is
reported apart, in a process that has done nothing yet. Sums of fused kernels add in lanes and
blocks (`relaxed_math`); `--strict` adds element after element.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import tiga as tg
from benchmarks.processes import NOTHING_KEPT, kept_in

Build = Callable[..., Any]
DTYPES = ("float32", "float64", "complex64", "complex128")


def _bsum(m: Any, x: Any, v: Any, c: Any) -> Any:
    return (x * v + c).sum(1)


def _arithmetic(m: Any, x: Any) -> Any:
    return ((x * 2.0 + 1.0) * x - 3.0) / 2.5 + x


def _tanh(m: Any, x: Any) -> Any:
    return m.tanh(m.tanh(m.tanh(x) * 1.5) + 0.5) * 2.0


def _middle(m: Any, x: Any) -> Any:
    return (x * 2.0).sum(1)


def _total(m: Any, x: Any) -> Any:
    return x.sum()


def _rows(m: Any, x: Any) -> Any:
    return x.sum(1)


def _columns(m: Any, x: Any) -> Any:
    return x.sum(0)


def durations(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of several runs of each call. The calls take turns, in an order that is drawn
    anew each time: who always follows the same one may find its own code or data in caches."""
    draw, names = random.Random(0), list(calls)
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name in draw.sample(names, len(names)):
            start = time.perf_counter()
            calls[name]()
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def best(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The shortest of several runs of each call in milliseconds; the calls take turns."""
    return {name: min(found) for name, found in durations(calls, repeats).items()}


def compared(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Medians of calls that take turns, their shortest times, and how many times faster ours is."""
    found = durations(calls, repeats)
    times = {name: median(each) for name, each in found.items()}
    shortest = {name: min(each) for name, each in found.items()}
    return {
        **times, "times_faster": _ratios(times),
        "shortest": shortest, "times_faster_shortest": _ratios(shortest),
    }  # fmt: skip


def _peers(
    build: Build, arrays: Sequence[np.ndarray], compiled: bool
) -> dict[str, Callable[[], Any]]:
    def by_numpy() -> Any:
        with np.errstate(all="ignore"):
            return build(np, *arrays)

    calls: dict[str, Callable[[], Any]] = {"numpy_ms": by_numpy}
    try:
        import torch
    except ImportError:
        return calls
    tensors = [torch.from_numpy(array) for array in arrays]
    calls["torch_eager_ms"] = lambda: build(torch, *tensors)
    if compiled:
        function = torch.compile(lambda *given: build(torch, *given), dynamic=False)
        calls["torch_compile_ms"] = lambda: function(*tensors)
    return calls


def measure(
    name: str,
    build: Build,
    arrays: Sequence[np.ndarray],
    repeats: int,
    compiled: bool,
    strict: bool = False,
) -> dict[str, Any]:
    """One case: how long each library takes, and whether the values agree."""
    tensors = [tg.from_numpy(array) for array in arrays]
    first = build(tg, *tensors).realize(strict=strict)
    calls = {
        "tiga_ms": lambda: build(tg, *tensors).realize(strict=strict),
        "tiga_prepared_ms": build(tg, *tensors).prepare(),
        **_peers(build, arrays, compiled),
    }
    turns = compared(calls, repeats)
    alone = {name: median(durations({name: calls[name]}, repeats)[name]) for name in calls}
    with np.errstate(all="ignore"):
        want = build(np, *arrays)
    scale = float(np.max(np.abs(want))) or 1.0
    return {
        "case": name,
        "dtype": str(arrays[0].dtype),
        "shape": list(arrays[0].shape),
        **turns,
        "tiga_compile_ms": first.execution["compile_ms"],
        "backend": first.execution["backend"],
        "relaxed_math": first.execution["relaxed_math"],
        "max_error": float(np.max(np.abs(first.numpy() - want))) / scale,
        "alone": alone,
        "times_faster_alone": _ratios(alone),
    }


def _ratios(times: dict[str, float]) -> dict[str, float]:
    """How many times longer each peer takes."""
    peers = {name: time for name, time in times.items() if not name.startswith("tiga")}
    return {name.removesuffix("_ms"): time / times["tiga_ms"] for name, time in peers.items()}


_FIRST = """
import time
import numpy as np
import tiga as tg
x, v = np.ones((4096, 1024), np.float32), np.ones(1024, np.float32)
x, v = tg.from_numpy(x), tg.from_numpy(v)
start = time.perf_counter()
({expression}).realize()
print(time.perf_counter() - start)
"""
FIRST_CALLS = {
    "(x * v + c).sum(1)": "(x * v + v).sum(1)",
    "six ops, arithmetic": "((x * 2.0 + 1.0) * x - 3.0) / 2.5 + x",
    "six ops, tanh": "tg.tanh(tg.tanh(tg.tanh(x) * 1.5) + 0.5) * 2.0",
    "sum": "x.sum()",
}


def first_calls(repeats: int) -> dict[str, Any]:
    """The first compiled call of a process, which loads the compiler too: the shortest of a few
    processes, which compile their kernels, or find them on disk. Run it with bytecode caches, as an
    installed package has them."""

    def run(expression: str, kernels: Mapping[str, str]) -> float:
        code, told = _FIRST.format(expression=expression), {**os.environ, **kernels}
        command = [sys.executable, "-c", code]
        made = subprocess.run(command, capture_output=True, check=True, env=told)
        return float(made.stdout) * 1e3

    def least(kernels: Mapping[str, str]) -> dict[str, float]:
        return {n: min(run(e, kernels) for _ in range(repeats)) for n, e in FIRST_CALLS.items()}

    times = least(NOTHING_KEPT)
    with TemporaryDirectory() as folder:
        least(kept_in(folder))  # leaves them there
        found = least(kept_in(folder))
    return {"case": "first compiled call of a process", "tiga_first_call_ms": times,
            "tiga_first_call_from_disk_ms": found}  # fmt: skip


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
    return {
        "case": "layer_norm forward and backward", "shape": [rows, columns],
        "tiga_first_call_ms": cold, "max_error": error,
        **compared({"tiga_ms": ours, "torch_eager_ms": theirs}, repeats),
    }  # fmt: skip


def small(repeats: int) -> dict[str, Any]:
    """A six-op program on 8 floats: from building to value, and through `prepare`."""
    a, b = tg.arange(8, dtype=tg.float32), tg.ones(8)

    def build() -> Any:
        return ((a * b + 2.0) - b) * a / b + a

    def thousand(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [call() for _ in range(1000)]

    calls = {"build_to_value_us": lambda: build().realize(), "prepared_us": build().prepare()}
    times = best({name: thousand(call) for name, call in calls.items()}, repeats)
    return {"case": "six ops on 8 floats", **times}


class _Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return edge.w * src.x


def message_passing(repeats: int) -> dict[str, Any]:
    """A warm call of a kernel on 1000 edges and 8 features, native tensors against torch's."""
    rng = np.random.default_rng(0)
    graph = tg.Graph.from_coo(*rng.integers(0, 200, (2, 1000)), num_src=200, num_dst=200)
    x, w = _random((200, 8), "float32"), _random((1000, 1), "float32")
    kernel = _Weighted()

    def call(make: Callable[[np.ndarray], Any]) -> Callable[[], Any]:
        fields = {"src": {"x": make(x)}, "edge": {"w": make(w)}}
        return lambda: kernel(graph=graph, **fields)

    native = call(tg.from_numpy)
    calls = {"tiga_us": lambda: [native().realize() for _ in range(1000)]}
    try:
        import torch

        other = call(torch.from_numpy)
        calls["on_torch_us"] = lambda: [other() for _ in range(1000)]
    except ImportError:
        pass
    return {"case": "a weighted sum over 1000 edges", **best(calls, repeats)}


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
        inner = _random((64, 256, 256), "float32")
        cases.append(measure("sum over a middle axis", _middle, (inner,), repeats, peers))
        long, tall = _random((4, 1_000_000), "float32"), _random((1_000_000, 4), "float32")
        cases.append(measure("sum of long rows", _rows, (long,), repeats, peers))
        cases.append(measure("sum over many rows", _columns, (tall,), repeats, peers))
        cases.append(small(repeats))
        cases.append(message_passing(repeats))
        cases.append(first_calls(3))
    print(json.dumps({"strict": options.strict, "cases": cases}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
