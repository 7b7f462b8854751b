"""Kernels of native tensors without a GPU: interpreted for numbers, compiled to PTX, their text."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytest.importorskip("triton")

import tiga as tg
from tests.golden.stored import require_stored
from tests.interpreted import run_interpreted
from tiga import errors
from tiga.backends.triton import index_kernels as ik
from tiga.backends.triton.compiled import compile_kernel, is_interpreted
from tiga.backends.triton.dense.adds import add_rows
from tiga.backends.triton.dense.combine import combination, combine
from tiga.backends.triton.dense.executable import compile_dense
from tiga.backends.triton.dense.form import decompose
from tiga.backends.triton.dense.matmul import ProductTile, product
from tiga.backends.triton.dense.moves import pick, strided_copy
from tiga.backends.triton.dense.outer import outer_pieces
from tiga.backends.triton.dense.rows import arg_extremum, argsort, running_sum
from tiga.backends.triton.dense.run import sources_of
from tiga.backends.triton.dense.sort import search, sort_keys
from tiga.backends.triton.radix import Digits, Sweep, count_digits, sweep
from tiga.backends.triton.writer import KernelSource
from tiga.frontends.tensor.program import program_of
from tiga.passes.tensor_spec import KernelStep
from tiga.runtime.driver import has_gpu
from tiga.types import bfloat16, complex64, float16, float32, float64, int8, int32, uint8


def test_the_interpreter_agrees_with_the_cpu() -> None:
    """`make test` runs this with torch and without, which do half of it each."""
    with_torch = ("index_arrays", "native_library", "native_order", "native_spill")
    without = ("native_numbers", "native_tensors", "native_messages", "native_documents")
    names = with_torch if find_spec("torch") else without
    run_interpreted(*(f"tests/gpu/test_{name}.py" for name in names))


PROGRAMS: dict[str, Callable[[], tg.Tensor]] = {
    "chain": lambda: tg.tanh(_empty(4096, 64) * 2.1 + 0.3) - 1.0,
    "broadcast_sum": lambda: (_empty(512, 1024) * _empty(1024) + 0.3).sum(axis=1),
    "total": lambda: _empty(1 << 22).sum(),
    "columns": lambda: (_empty(5000, 100) * 2.0).max(axis=0),
    "softmax": lambda: tg.softmax(_empty(64, 1000), axis=1),
    "long_rows": lambda: tg.softmax(_empty(8, 30000), axis=1),
    "complex": lambda: _empty(100, 64, dtype=tg.complex64) / _empty(64, dtype=tg.complex64),
    "narrow": lambda: (_empty(30, 70, dtype=tg.bfloat16) * 2.0).sum(axis=1),
}


def _empty(*shape: int, dtype: object = None) -> tg.Tensor:
    return tg.empty(shape, dtype=dtype)


def sources(name: str) -> list[KernelSource]:
    """The kernels of a program."""
    return sources_for(PROGRAMS[name]())


def sources_for(value: tg.Tensor) -> list[KernelSource]:
    executable = compile_dense(program_of([value._node]).program)
    assert not executable.calls
    return [source for step in executable.kernels for source in sources_of(step)]


def ptx(source: KernelSource, capability: int = 90) -> str:
    aligned = [p.type.startswith("*") for p in source.parameters]
    return str(compile_kernel(source, capability, aligned).asm["ptx"])


@pytest.mark.skipif(is_interpreted(), reason="Triton interprets")
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile_without_a_gpu(name: str, capability: int) -> None:
    for source in sources(name):
        text = ptx(source, capability)
        assert f".target sm_{capability}" in text
        assert f".entry {source.name}" in text


@pytest.mark.skipif(is_interpreted(), reason="Triton interprets")
def test_inverse_functions_of_complex_numbers_compile_without_a_gpu() -> None:
    z = _empty(100, 64, dtype=tg.complex64)
    for source in sources_for(tg.atanh(tg.acos(z))):
        assert f".entry {source.name}" in ptx(source)


@pytest.mark.skipif(is_interpreted(), reason="Triton interprets")
@pytest.mark.parametrize("name", ["chain", "broadcast_sum", "total", "softmax"])
def test_memory_is_read_sixteen_bytes_at_a_time(name: str) -> None:
    loads = [s for s in sources(name) if s.name == "kernel"]
    assert loads
    for source in loads:
        text = ptx(source)
        if name != "softmax":  # a thousand columns are no multiple of 16
            assert "ld.global.v4" in text


STANDING = [
    combine(combination("add", float32, 1000, 1), False),
    combine(combination("maximum", bfloat16, 40, 300), True),
    strided_copy(3, "i16", False), strided_copy(2, "i64", True),
    pick("i32", "i64", False), pick("i8", "i32", True),
    *(arg_extremum("argmax", d, 256) for d in (float16, float64, uint8)),
    *(running_sum(d, True, 128) for d in (float32, bfloat16, int32)),
    argsort(float32, False, 1024), argsort(int8, True, 64), add_rows(bfloat16, 64),
    sort_keys(float64, True), sort_keys(bfloat16, False), sort_keys(uint8, True),
    search(float16, True), search(int32, False), outer_pieces(bfloat16, ProductTile(16, 64, 32)),
    outer_pieces(float64, ProductTile(64, 64, 32)), ik.pack(),
    count_digits(Digits(9, 2, False), "i64"), ik.search("i64", None), ik.running("i8"),
    ik.reduction("max", "i32"),
    ik.binary("floordiv", "i64", None, "i64", False), ik.compact("i8"), ik.put("i16", "i64", "i64"),
    *(product(d, ProductTile(64, 64, 32)) for d in (float16, bfloat16, float32, float64, int8,
                                                    complex64)),
]  # fmt: skip


@pytest.mark.skipif(is_interpreted(), reason="Triton interprets")
@pytest.mark.parametrize("source", STANDING, ids=lambda s: s.name)
def test_standing_kernels_compile(source: KernelSource) -> None:
    assert f".entry {source.name}" in ptx(source)


SWEEPS = [
    Sweep(Digits(8, 4, False), "i32", first=True, last=False, counted=True),
    Sweep(Digits(9, 2, True), "i64", first=False, last=True),
    Sweep(Digits(8, 1, False), "i64", first=True, last=True, keyed=True),
]


@pytest.mark.skipif(is_interpreted(), reason="Triton interprets")
@pytest.mark.parametrize("of", SWEEPS, ids=lambda s: f"{s.digits.bits} bits of {s.key}")
def test_passes_of_a_sort_order_their_tile_once(of: Sweep) -> None:
    """The compiler repeats what two layouts need; shared memory holds the order of one."""
    text = ptx(sweep(of))
    assert text.count(" values[") == text.count(" counts[") == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_of_kernels(name: str) -> None:
    code = "\n".join(f"# {s.tile.warps} warps\n{s.text}" for s in sources(name))
    require_stored(f"triton/tensor_{name}.py.txt", code)


def step_of(tensor: tg.Tensor) -> KernelStep:
    (step,) = compile_dense(program_of([tensor._node]).program).kernels
    return step


def test_offsets_have_64_bits_where_they_need_them() -> None:
    """Views of one element, so that no memory is taken."""
    for rows, wide in ((2**19, False), (2**21, True)):
        x = tg.broadcast_to(tg.zeros((1, 1)), (rows, 1024))
        form = decompose(step_of(x * 2.0 + x)).form
        assert form.wide == wide


def test_the_programs_depend_on_extents_alone() -> None:
    first, again = (decompose(step_of(_empty(100_000, 64).sum(axis=0))) for _ in range(2))
    assert first == again
    assert first.groups > 1


@pytest.mark.skipif(has_gpu() or is_interpreted(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    for make in (lambda: tg.ones(2, device="cuda"), lambda: tg.ones(2).cuda()):
        with pytest.raises(errors.InvalidValue, match=r"cuda.*test_gpu_kernels.*NVIDIA"):
            make()
    with pytest.raises(errors.InvalidValue, match="'cuda:N'"):
        tg.ones(2, device="tpu")
