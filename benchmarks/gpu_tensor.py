"""Native tensors on one GPU, beside torch.compile and the rate of a copy.

    python -m benchmarks.gpu_tensor [--millions 64] [--out DIR]

Correctness comes first: a case whose result differs from torch's is reported and not timed. Times
are medians of device events with a cold L2 cache. "of copy" is the rate at which a case's operands
and results move, as a share of the rate of a copy of as many bytes.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton.testing

import tiga as tg

Build = Callable[..., Any]
TOLERANCE = 2e-5


def _arithmetic(m: Any, x: Any) -> Any:
    return ((x * 2.0 + 1.0) * x - 3.0) / 2.5 + x


def _tanh(m: Any, x: Any) -> Any:
    return m.tanh(m.tanh(m.tanh(x) * 1.5) + 0.5) * 2.0


def _one_tanh(m: Any, x: Any) -> Any:
    return m.tanh(x * 2.0 + 1.0) * x - x * 0.5


def _broadcast_sum(m: Any, x: Any, v: Any, c: Any) -> Any:
    return (x * v + c).sum(1)


def _total(m: Any, x: Any) -> Any:
    return x.sum()


def _columns(m: Any, x: Any) -> Any:
    return x.sum(0)


def _softmax(m: Any, x: Any) -> Any:
    return m.softmax(x, 1) if m is torch else m.softmax(x, axis=1)


def _complex(m: Any, x: Any, v: Any) -> Any:
    return (x * v + 1.0) * m.conj(x)


def _quotient(m: Any, x: Any, v: Any) -> Any:
    return -(x / v) + x


@dataclass(frozen=True)
class Case:
    """An expression, its operands, and the bytes that it has to move."""

    name: str
    build: Build
    operands: tuple[torch.Tensor, ...]

    @property
    def nbytes(self) -> int:
        out = self.build(torch, *self.operands)
        return sum(t.numel() * t.element_size() for t in (*self.operands, out))


def cases(millions: int) -> list[Case]:
    """The cases on that many millions (2^20) of numbers."""
    generator = torch.Generator("cuda").manual_seed(1)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)

    count, columns = millions * 2**20, 1024
    x = random(count)
    matrix = x.view(-1, columns)
    v, c = random(columns), random(len(matrix), 1)
    z = random(count // 2, dtype=torch.complex64).view(-1, columns)
    return [
        Case("six operations, arithmetic", _arithmetic, (x,)),
        Case("six operations, one tanh", _one_tanh, (x,)),
        Case("six operations, three tanh", _tanh, (x,)),
        Case("(x * v + c).sum(1)", _broadcast_sum, (matrix, v, c)),
        Case("sum of all", _total, (x,)),
        Case("sum over rows", _columns, (matrix,)),
        Case("softmax of rows", _softmax, (matrix,)),
        Case("complex64 multiply, add, conj", _complex, (z, z[0].clone())),
        Case("complex64 divide, negate, add", _quotient, (z, z[0].clone())),
        Case("arithmetic in bfloat16", _arithmetic, (x.bfloat16(),)),
    ]


def median(call: Callable[[], Any]) -> float:
    """Milliseconds of one call."""
    return float(triton.testing.do_bench(call, warmup=20, rep=100, return_mode="median"))


def copy_rate(nbytes: int) -> float:
    """Bytes a second, read and written, of a copy that moves so many."""
    source = torch.empty(nbytes // 8, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return nbytes / median(lambda: target.copy_(source)) * 1e3


def error(case: Case, got: torch.Tensor) -> float:
    """The norm of the difference to float64, over the norm."""
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    want = case.build(torch, *(t.to(wide) for t in case.operands))
    return float((got.to(wide) - want).norm() / want.norm())


def measure(case: Case, rate: float) -> dict[str, Any]:
    """One row of the table."""
    given = [tg.from_dlpack(t) for t in case.operands]
    out = case.build(tg, *given).realize()
    assert out.execution["backend"] == "cuda-triton", out.execution
    wrong = error(case, torch.from_dlpack(out))
    limit = TOLERANCE if case.operands[0].dtype != torch.bfloat16 else 1e-2
    row = {"case": case.name, "error": wrong, "kernels": out.execution["kernels"]}
    if not wrong <= limit:
        return row
    torch.compiler.reset()
    compiled = torch.compile(lambda *t: case.build(torch, *t), dynamic=False)
    compiled(*case.operands)
    run, nbytes = out.prepare(), case.nbytes
    ours, peer = median(run), median(lambda: compiled(*case.operands))
    return row | {
        "ours_ms": ours, "torch_compile_ms": peer, "ratio": peer / ours,
        "of_copy": nbytes / ours * 1e3 / rate, "mbytes": nbytes / 1e6,
        "call_ms": median(lambda: case.build(tg, *given).realize()),
    }  # fmt: skip


def small() -> dict[str, float]:
    """Microseconds of the host for six operations on 8 numbers: built and launched, prepared."""
    import time

    x = tg.ones(8, device="cuda")
    run = _arithmetic(tg, x).prepare()

    def best(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(300):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times) * 1e6

    return {"build_us": best(lambda: _arithmetic(tg, x).realize()), "prepared_us": best(run)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=64)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rate = copy_rate(8 * options.millions * 2**20)
    print(f"{torch.cuda.get_device_name()}: a copy moves {rate / 1e12:.2f} TB/s", flush=True)
    print("| case | ours ms | torch.compile ms | ratio | of copy | error |")
    print("|---|---|---|---|---|---|")
    rows = []
    for case in cases(options.millions):
        row = measure(case, rate)
        rows.append(row)
        shown = ("ours_ms", "torch_compile_ms", "ratio", "of_copy")
        texts = " | ".join(f"{row.get(key, math.nan):.3f}" for key in shown)
        print(f"| {row['case']} | {texts} | {row['error']:.1e} |", flush=True)
    host = small()
    print(f"8 numbers: {host['build_us']:.0f} us built, {host['prepared_us']:.1f} us prepared")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        told = {"copy_bytes_per_second": rate, "cases": rows, **host}
        (options.out / "gpu_tensor.json").write_text(json.dumps(told, indent=2))
    return any("ours_ms" not in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
