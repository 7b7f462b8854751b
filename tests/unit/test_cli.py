"""The command line: doctor, and how the demonstration measures."""

import argparse
import subprocess
import sys

import numpy as np
import pytest

import tiga
from tiga import __main__ as command_line
from tiga._cli import doctor, measure


def test_doctor_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([]) == 0
    said = capsys.readouterr().out
    for fact in doctor.FACTS:
        assert fact in said
    assert tiga.__version__ in said


def test_doctor_runs_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "tiga"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "OpenMP" in result.stdout


def test_doctor_fails_without_the_bindings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no_such_bindings"))
    assert doctor.run(argparse.Namespace()) == 1
    assert "missing: no_such_bindings" in capsys.readouterr().out


def test_doctor_names_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIGA_NUM_THREADS", "1")
    command_line.main(["doctor"])
    said = capsys.readouterr().out
    assert "TIGA_NUM_THREADS=1" in said


def test_vector_width_is_a_power_of_two() -> None:
    bits = doctor.vector_bits()
    assert bits is None or bits in (128, 256, 512)


def test_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["demonstrate"])
    assert "doctor" in capsys.readouterr().err


def test_demo_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tiga._cli import demo

    monkeypatch.setattr(demo, "NEEDS", {"no_such_module": "no-such-package"})
    assert command_line.main(["demo"]) == 1
    assert "the demo needs no-such-package" in capsys.readouterr().out


def test_interleave_gives_every_step_one_reading_a_round() -> None:
    order: list[str] = []
    steps = {name: lambda name=name: order.append(name) for name in "ab"}
    times = measure.interleave(steps, budget=0.05)
    assert len(times["a"]) == len(times["b"]) >= 3
    assert min(*times["a"], *times["b"]) > 0


@pytest.mark.skipif(not measure.can_read_memory(), reason="no resettable high-water mark")
def test_rise_sees_what_a_step_held() -> None:
    size = 64 * 2**20

    def step() -> None:
        held = np.ones(size, np.uint8)
        del held

    slack = 4 * 2**20  # the kernel counts pages in batches
    assert abs(measure.rise(step) - size) < slack
    assert measure.rise(lambda: None) < slack
