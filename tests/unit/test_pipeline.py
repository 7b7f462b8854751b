"""The pipeline: verification, dumps that can be run again, errors that name the pass."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.test_ir_round_trip import EDGES, make_input
from tiga import knobs, opt
from tiga.errors import InvalidValue
from tiga.ops import functions, message, pointwise
from tiga.passes.base import Pass, ScheduledPlan
from tiga.passes.differentiate import Vjp
from tiga.passes.fold import Fold
from tiga.passes.form_rows import FormRows
from tiga.passes.pipeline import PASSES, PIPELINE, run_pass, run_pipeline
from tiga.passes.spelling import parse_passes
from tiga.passes.text import form_text
from tiga.trace.node import intern
from tiga.trace.program import Program
from tiga.types import Type, float32


@pytest.fixture
def program() -> Program:
    x = make_input("x", Type(float32, (4,), EDGES.src))
    m = functions.exp(message.gather(EDGES, "src", x), where="model.py:7")
    return Program((x,), (message.reduce(EDGES, "dst", "sum", m),))


@dataclass(frozen=True)
class Break(Pass, name="test-break"):
    """Leave a node whose type is not what its op infers."""

    def __call__(self, form: Program) -> Program:
        (out,) = form.outputs
        return Program(form.inputs, (intern(out.op, out.inputs, out.type.with_shape((5,))),))


@dataclass(frozen=True)
class Fail(Pass, name="test-fail"):
    """Fail as an op without a rule does."""

    def __call__(self, form: Program) -> Program:
        raise NotImplementedError("gf.sort has no derivative")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_result_is_the_same_at_every_level(program: Program, level: int) -> None:
    with knobs.scope(verify=level):
        form = run_pipeline(program)
    assert isinstance(form, ScheduledPlan)
    assert form == run_pipeline(program)


@pytest.mark.parametrize("level", [1, 2])
def test_a_pass_that_breaks_the_program_is_named(program: Program, level: int) -> None:
    with knobs.scope(verify=level), pytest.raises(AssertionError, match="pass test-break left"):
        run_pipeline(program, (Break(),))


def test_level_0_trusts_passes(program: Program) -> None:
    with knobs.scope(verify=0):
        assert run_pipeline(program, (Break(),)).outputs[0].type.shape == (5,)


def test_a_pass_that_fails_is_named(program: Program) -> None:
    with pytest.raises(InvalidValue, match=r"pass test-fail: gf\.sort has no derivative"):
        run_pass(Fail(), program)


def test_every_stage_is_dumped_and_repeats_the_next(program: Program, tmp_path: Path) -> None:
    with knobs.scope(dump=tmp_path):
        run_pipeline(program, name="forward")
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("forward-")
    stages = sorted(folder.iterdir())
    made_by = ["trace", *(step.name for step in PIPELINE)]
    assert [path.name for path in stages] == [f"{i:02}-{n}.mlir" for i, n in enumerate(made_by)]
    for path, following, step in zip(stages, stages[1:], PIPELINE, strict=False):
        assert f"python -m tiga.opt {path.name} -p '{step}'" in path.read_text()
        again = opt.optimize(path.read_text(), [step], locations=True)
        assert _without_comments(following.read_text()) == again.strip()
    assert '"model.py":7' in stages[0].read_text()


def test_passes_of_gpus_are_dumped_and_repeat_the_next(program: Program, tmp_path: Path) -> None:
    from tiga.backends.triton.pipeline import PIPELINE as GPU
    from tiga.backends.triton.pipeline import planned

    with knobs.scope(dump=tmp_path):
        plan = planned(program)
    (folder,) = tmp_path.iterdir()
    stages = [path.name for path in sorted(folder.iterdir())]
    made_by = ["trace", *(step.name for step in GPU)]
    assert stages == [f"{i:02}-{n}.mlir" for i, n in enumerate(made_by)]
    assert plan == planned(program)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("//")).strip()


def test_programs_do_not_overwrite_each_other(program: Program, tmp_path: Path) -> None:
    with knobs.scope(dump=tmp_path):
        run_pipeline(program)
        run_pipeline(program)
        run_pipeline(Fold()(Vjp()(program)))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: kind.name)
def test_every_pass_is_spelt_as_it_is_read(kind: type[Pass]) -> None:
    assert parse_passes(str(kind()), PASSES) == [kind()]


def test_options_are_spelt_as_they_are_read() -> None:
    steps = [Fold(), Vjp(wanted=("x", "w"), present=(0, 2)), FormRows()]
    assert parse_passes(",".join(map(str, steps)), PASSES) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gf-melt", "expected passes of gf-canonicalize, .* got 'gf-melt'"),
        ("gf-vjp{cold=1}", "gf-vjp: expected options of wanted=..., present=...; got 'cold=1'"),
        ("gf-fold{x=1}", "gf-fold: expected options of none"),
        ("gf-vjp{present=a}", "option present cannot be 'a'"),
        ("gf-vjp{present=0", "expected passes as a,b"),
        ("gf-fold gf-hoist", "expected passes as a,b"),
    ],
)
def test_wrong_pipelines_are_explained(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        parse_passes(text, PASSES)


def test_the_command_line_runs_passes(program: Program, tmp_path: Path, capsys) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(form_text(program, "f"))
    assert opt.main([str(path), "-p", "gf-hoist,gf-form-rows"]) == 0
    assert "gf_iter.walk" in capsys.readouterr().out
    assert opt.main([str(path), "-p", "gf-form-rows,gf-hoist"]) == 1
    assert "@f: pass gf-hoist: expected a Program, got a Plan" in capsys.readouterr().err
    assert opt.main([str(tmp_path / "none.mlir")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_command_line_lists_passes() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tiga.opt", "--list"], capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in result.stdout.splitlines()] == [p.name for p in PASSES]


def test_modules_of_other_dialects_are_refused() -> None:
    text = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n" \
        "  %0 = arith.addf %x, %x : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}"  # fmt: skip
    with pytest.raises(InvalidValue, match=r"an op of the gf dialect, got arith.addf \(-:2\)"):
        opt.optimize(text, [])


def test_a_sum_of_two_gathers_keeps_its_order(program: Program) -> None:
    x = program.inputs[0]
    total = pointwise.add(functions.exp(x), functions.tanh(x))
    text = form_text(Program((x,), (total,)))
    assert text.index("gf.exp") < text.index("gf.tanh") < text.index("gf.add")
