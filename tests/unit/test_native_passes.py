"""MLIR's own passes beside ours: on every level, on the backend's stages, and their errors."""

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import tiga as tg
from tests.compiled import call
from tests.unit.test_ir_round_trip import EDGES, make_input
from tiga import knobs, opt
from tiga.backends.llvm.engine import PIPELINE, compile_module
from tiga.backends.llvm.stages import Stages
from tiga.compiler import compile_program, executable
from tiga.errors import InvalidValue
from tiga.ir.context import parse
from tiga.ops import functions, message
from tiga.passes.levels import new_context
from tiga.passes.native import NativePass
from tiga.passes.pipeline import PASSES
from tiga.passes.pipeline import PIPELINE as FORMS
from tiga.passes.spelling import parse_passes
from tiga.relations import Graph
from tiga.trace.program import Program
from tiga.types import Type, float32

TWICE = """func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
  %0 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %1 = "gf.exp"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %2 = "gf.add"(%0, %1) : (tensor<?xf32, "src">, tensor<?xf32, "src">) -> tensor<?xf32, "src">
  %3 = "gf.tanh"(%0) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
  return %2 : tensor<?xf32, "src">
}"""


def run(text: str, passes: str) -> str:
    return opt.optimize(text, parse_passes(passes, PASSES))


def test_native_passes_see_that_our_ops_are_pure() -> None:
    merged = run(TWICE, "cse")
    assert merged.count("gf.exp") == 1
    assert "gf.tanh" not in run(TWICE, "canonicalize")


def test_both_kinds_stand_in_any_order() -> None:
    levels = run(TWICE, "cse,gf-fold,canonicalize,gf-form-rows,cse,gf-iter-schedule,canonicalize")
    assert "gf_kernel.launch" in levels
    assert run(levels, "") == levels, "what native passes leave is read again"


def test_modules_of_upstream_dialects_need_native_passes_only() -> None:
    text = "func.func @f(%x: i64) -> i64 {\n  %0 = arith.addi %x, %x : i64\n  return %0 : i64\n}"
    lowered = run(text, ",".join(PIPELINE))
    assert "llvm.add" in lowered
    with pytest.raises(InvalidValue, match="expected a tensor of a type that values have, got i64"):
        run(text, "cse,gf-fold")


def test_options_go_to_the_pass() -> None:
    (step,) = parse_passes("canonicalize{top-down=false max-iterations=3}", PASSES)
    assert isinstance(step, NativePass)
    assert parse_passes(str(step), PASSES) == [step]


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("melt", "or any of MLIR's own; got 'melt'"),
        ("cse{cold=1}", "pass cse: expected options that it takes, got .*no such option cold"),
    ],
)
def test_wrong_native_passes_are_explained(passes: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        parse_passes(passes, PASSES)


def test_a_native_pass_that_fails_is_named() -> None:
    with pytest.raises(InvalidValue, match=r"pass one-shot-bufferize:2: op was not"):
        run(TWICE, "cse,one-shot-bufferize")


@pytest.fixture
def program() -> Program:
    x = make_input("x", Type(float32, (6,), EDGES.src))
    value = functions.abs_(message.gather(EDGES, "src", x))
    return Program((x,), (message.reduce(EDGES, "dst", "sum", value),))


def _run_once(program: Program) -> None:
    graph = Graph.from_coo(np.array([0, 1, 2]), np.array([0, 0, 1]), num_src=3, num_dst=2)
    call(compile_program(program, "forward"), graph, [np.ones((3, 6), np.float32)])


def test_the_backends_stages_are_dumped_and_repeat_the_next(
    program: Program, tmp_path: Path
) -> None:
    with knobs.scope(dump=tmp_path):
        _run_once(program)
    (folder,) = tmp_path.iterdir()
    number = len(FORMS) + 1
    stages = sorted(folder.glob(f"{number:02}-*"))
    names = [path.name.removeprefix(f"{number:02}-kernel0-i32-") for path in stages]
    ends = [f"{name}.mlir" for name in PIPELINE]
    assert names == [f"{i}-{n}" for i, n in enumerate(["module.mlir", *ends, "llvm.ll"])]
    for path, following, name in zip(stages, stages[1:], PIPELINE, strict=False):
        assert f"python -m tiga.opt {path.name} -p '{name}'" in path.read_text()
        assert _body(following) == _strip(run(path.read_text(), name))
    last = re.search(r"// Last stage: .* -p '(.*)'", stages[0].read_text())
    assert last is not None
    assert _strip(run(stages[0].read_text(), last[1])) == _body(stages[-2])
    assert "define void @step_rows(" in stages[-1].read_text()
    assert sorted(folder.iterdir())[:number] == [
        folder / f"{i:02}-{name}.mlir"
        for i, name in enumerate(["trace", *(step.name for step in FORMS)])
    ]


def _strip(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("//")).strip()


def _body(path: Path) -> str:
    return _strip(path.read_text())


def test_a_dumped_module_is_what_runs(program: Program, tmp_path: Path) -> None:
    """The stage before the passes compiles to functions that the launcher can call."""
    with knobs.scope(dump=tmp_path):
        _run_once(program)
    (path,) = tmp_path.glob("*/*-0-module.mlir")
    library = compile_module(parse(path.read_text(), new_context()))
    assert "step_rows" in library.names
    slots = (ctypes.c_int64 * 64)()
    no_task = (ctypes.addressof(slots), 0, 0)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kernel(library.address("step_rows"))(*no_task)


@pytest.mark.parametrize(("level", "verifies"), [(0, False), (1, True), (2, True)])
def test_the_backend_verifies_as_the_knob_says(
    program: Program, level: int, verifies: bool
) -> None:
    with knobs.scope(verify=level):
        compiled = compile_program(program)
    assert [kernel.stages.verify for kernel in compiled.executable.kernels] == [verifies]


def test_nothing_is_written_without_a_folder() -> None:
    assert Stages().dump("kernel0") is None


def test_a_program_that_is_compiled_already_is_compiled_again_for_a_dump(
    program: Program, tmp_path: Path
) -> None:
    first = executable(program)
    assert executable(program) is first
    with knobs.scope(dump=tmp_path):
        assert executable(program) is executable(program) is not first
    (folder,) = tmp_path.iterdir()
    assert (folder / "00-trace.mlir").exists()
    assert executable(program) is first
    with knobs.scope(verify=2):
        assert executable(program) is not first


def test_a_kernel_made_after_the_folder_was_named_is_dumped(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Doubled(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * 2 + 0.4375

    graph = Graph.from_coo(np.array([0, 1, 2]), np.array([0, 0, 1]), num_src=3, num_dst=3)
    want = Doubled()(graph=graph, ndata={"x": torch.arange(3.0)})
    with knobs.scope(dump=tmp_path):
        got = Doubled()(graph=graph, ndata={"x": torch.arange(3.0)})
    assert torch.equal(got, want)
    assert list(tmp_path.glob("*/*-kernel0-*-module.mlir"))


def test_a_native_kernel_on_another_graph_is_dumped(tmp_path: Path) -> None:
    class Doubled(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * 2 + 0.5625

    def run_on(sources: list[int]) -> list[float]:
        graph = Graph.from_coo(np.array(sources), np.array([0, 0, 1]), num_src=3, num_dst=3)
        return Doubled()(graph=graph, ndata={"x": tg.tensor([0.0, 1.0, 2.0])}).tolist()

    run_on([1, 0, 2])
    with knobs.scope(dump=tmp_path):
        run_on([0, 1, 2])
    assert list(tmp_path.glob("*/*-kernel0-*-module.mlir"))
