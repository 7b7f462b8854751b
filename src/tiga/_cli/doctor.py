"""What Tiga finds on this machine, one fact a line."""

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Callable

import tiga
from tiga import knobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The doctor takes no arguments."""


def run(options: argparse.Namespace) -> int:
    """Print every fact; the status is 1 when something that every program needs is missing."""
    width = max(map(len, FACTS))
    for name, find in FACTS.items():
        print(f"{name:<{width}}  {find()}")
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"\nmissing: {', '.join(missing)}; run  pip install --force-reinstall tiga-lang")
    return 1 if missing else 0


REQUIRED = ("torch_mlir", "numpy", "ml_dtypes")


def _version_of(distribution: str, otherwise: str) -> Callable[[], str]:
    def find() -> str:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return otherwise

    return find


def _mlir() -> str:
    version = _version_of("torch-mlir", "not installed")()
    try:
        importlib.import_module("torch_mlir.ir")
    except ImportError as error:
        return f"{version}, but it cannot be loaded: {error}"
    return f"{version}, loads"


def _openmp() -> str:
    from tiga.runtime import parallel

    return parallel.describe()


def _threads() -> str:
    from tiga.runtime import parallel

    if importlib.util.find_spec("torch") is None:
        return str(parallel.thread_count())
    import torch

    return str(parallel.thread_count(torch.get_num_threads()))


# What numpy calls a processor's features, with the vector width that they mean; widest first.
_VECTOR_BITS = (
    ("AVX512", 512),
    ("X86_V4", 512),
    ("AVX2", 256),
    ("X86_V3", 256),
    ("SVE", 128),
    ("ASIMD", 128),
    ("NEON", 128),
    ("X86_V2", 128),
    ("SSE", 128),
)


def vector_bits() -> int | None:
    """Bits of the widest vector register that this processor is known to have."""
    import numpy

    extensions = numpy.show_config(mode="dicts")["SIMD Extensions"]
    features = [*extensions.get("baseline", []), *extensions.get("found", [])]
    for prefix, bits in _VECTOR_BITS:
        if any(feature.startswith(prefix) for feature in features):
            return bits
    return None


def _vectors() -> str:
    bits = vector_bits()
    if bits is None:
        return "unknown"
    return f"{bits} bits: {bits // 32} float32 or {bits // 64} float64 at once"


def _gpu() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none: no NVIDIA driver (nvidia-smi is not on the path)"
    query = [tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    result = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    if result.returncode != 0:
        return f"none: nvidia-smi failed: {(result.stderr or result.stdout).strip()}"
    found = "; ".join(result.stdout.strip().splitlines())
    return f"{found}; {_gpu_kernels()}"


def _gpu_kernels() -> str:
    triton = _version_of("triton", "")()
    if not triton:
        return "kernels need Triton: pip install 'tiga-lang[cuda]'"
    from tiga.runtime.driver import has_gpu

    launches = "launched through NVIDIA's driver" if has_gpu() else "NVIDIA's driver does not load"
    return f"kernels through Triton {triton}, {launches}"


def _kernel_cache() -> str:
    try:
        from tiga.backends.llvm.kernel_cache import kept_files
    except ImportError:
        return "none: the MLIR bindings cannot be loaded"
    files = kept_files()
    if files is None:
        return "none: switched off, or not on this machine (Linux on x86-64, with a home)"
    held = files.held()
    if held is None:
        return f"none: {files.folder} is not this user's alone, or cannot be read"
    mib, most = held.nbytes / 2**20, files.most / 2**20
    return f"{files.folder}: {held.files} files, {mib:.1f} of {most:.0f} MiB"


def _settings() -> str:
    variables = [knob.metadata["variable"] for knob in knobs.TABLE]
    given = [f"{name}={os.environ[name]}" for name in variables if os.environ.get(name)]
    return " ".join(given) or "none (all defaults)"


FACTS: dict[str, Callable[[], str]] = {
    "tiga": lambda: tiga.__version__,
    "python": lambda: f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    "torch": _version_of("torch", "not installed: pip install 'tiga-lang[torch]'"),
    "MLIR bindings": _mlir,
    "numpy": _version_of("numpy", "not installed"),
    "OpenMP": _openmp,
    "threads": _threads,
    "CPU vectors": _vectors,
    "GPU": _gpu,
    "kernels on disk": _kernel_cache,
    "settings": _settings,
}
