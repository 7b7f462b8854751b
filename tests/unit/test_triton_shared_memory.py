"""Kernels that need more shared memory than there is are found before they are compiled."""

from types import SimpleNamespace

import pytest

from tests.gpu import programs
from tests.gpu.harness import RELATION as R
from tiga.backends.triton import compiled, shared_memory
from tiga.backends.triton.compiled import _Asked, compile_kernel, is_interpreted
from tiga.backends.triton.executable import compile_program
from tiga.ops.contract import contract
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32

CAPABILITY = 90
pytestmark = pytest.mark.skipif(is_interpreted(), reason="Triton interprets kernels")


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A kernel that takes some shared memory, with an empty cache of Triton's."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_in_use", {})
    program = programs.MAKERS["difference_network"](float32).program
    return next(s for s in compile_program(program).sources() if s.name == "step2_rows")


def alignment(source):
    return [p.type.startswith("*") for p in source.parameters]


def compile_with(monkeypatch, needed):
    """Let kernels take what `needed` says for their number of stages; the compilations made."""
    made = []

    def compile_(asked, **changes):
        made.append(changes)
        shared = needed[changes.get("num_stages", 3)]
        return SimpleNamespace(metadata=SimpleNamespace(shared=shared))

    monkeypatch.setattr(_Asked, "compile", compile_)
    return made


def test_what_is_found_beforehand_is_what_the_kernel_takes(source):
    asked = _Asked(source, CAPABILITY, alignment(source))
    found = asked.shared_bytes()
    assert found == asked.compile().metadata.shared > 0


def test_products_of_very_wide_values_fit():
    x, w = (Input(n, Type(float32, (3000,), s))() for n, s in (("x", R.src), ("w", R.edge)))
    matrix = Input("matrix", Type(float32, (3000, 16), GLOBAL))()
    sent = sum_to(R, "dst", tanh(contract(mul(gather(R, "src", x), w), matrix)))
    for source in compile_program(Program((x, w, matrix), (sent,))).sources(has_chunks=False):
        shared = _Asked(source, CAPABILITY, alignment(source)).shared_bytes()
        assert shared <= compiled.SHARED_KIB[CAPABILITY] * 1024


def test_it_is_found_once(source, monkeypatch):
    asked = _Asked(source, CAPABILITY, alignment(source))
    found = asked.shared_bytes()
    monkeypatch.setattr(shared_memory, "_measured", None)
    assert asked.shared_bytes() == found
    other = _Asked(source, CAPABILITY, [False] * len(source.parameters))
    assert other.shared_bytes() is None, "calling None is a TypeError, as of another Triton"


@pytest.mark.parametrize("most_kib", [0, 227])
def test_a_kernel_is_compiled_once_whether_it_fits_or_not(source, monkeypatch, most_kib):
    monkeypatch.setitem(compiled.SHARED_KIB, CAPABILITY, most_kib)
    monkeypatch.setattr(compiled, "MANY_WARPS", 1)
    made = compile_with(monkeypatch, {3: 4096 if most_kib else 2**20, 1: 0})
    compile_kernel(source, CAPABILITY, alignment(source))
    assert made == [{} if most_kib else {"num_stages": 1}]


def test_where_triton_does_not_tell_compiling_does(source, monkeypatch):
    monkeypatch.setattr(compiled, "MANY_WARPS", 1)
    monkeypatch.setattr(compiled, "shared_bytes", lambda *asked: None)
    made = compile_with(monkeypatch, {3: 2**20, 1: 1024})
    assert compile_kernel(source, CAPABILITY, alignment(source)).metadata.shared == 1024
    assert made == [{}, {"num_stages": 1}]
