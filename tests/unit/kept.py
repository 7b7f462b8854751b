"""Small modules compiled with kernels kept in a folder of the test's own."""

import ctypes

import pytest
from torch_mlir import ir

from tiga.backends.llvm import kernel_cache
from tiga.backends.llvm.engine import compile_module

UNARY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
served = pytest.mark.skipif(not kernel_cache._is_served(), reason="code is not kept here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where code is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TIGA_KERNEL_CACHE")
    kernel_cache._writer.cache_clear()
    yield tmp_path / "tiga" / "kernels"
    kernel_cache._writer.cache_clear()


def adds(number):
    return f"""
      func.func @adds(%a: i64) -> i64 {{
        %n = arith.constant {number} : i64
        %b = arith.addi %a, %n : i64
        return %b : i64
      }}
      func.func @doubles(%a: i64) -> i64 {{
        %b = func.call @twice(%a) : (i64) -> i64
        return %b : i64
      }}
      func.func private @twice(%a: i64) -> i64 {{
        %b = arith.addi %a, %a : i64
        return %b : i64
      }}"""


def compiled(text, **options):
    """A library whose code is written, and kept if it can be."""
    with ir.Context():
        library = compile_module(ir.Module.parse(text), **options)
    library.generate()
    return library


def results(library):
    return [UNARY(library.address(name))(20) for name in ("adds", "doubles")]
