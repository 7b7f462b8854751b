"""The benchmark harness itself: graphs, correctness gate, bars, memory readings."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import graphs, report
from benchmarks.harness import (
    Contestant,
    Options,
    TimedCase,
    WrongAnswer,
    relative_error,
    relative_norm,
)
from benchmarks.results import AtLeast, AtMost, Measured, spread


@pytest.mark.parametrize("kind", graphs.GRAPHS)
def test_graphs_are_valid_and_repeatable(kind: str) -> None:
    first, second = graphs.GRAPHS[kind](2000, 16), graphs.GRAPHS[kind](2000, 16)
    assert first.num_edges == 2000 * 16
    assert first.row_ptr[0] == 0
    assert (np.diff(first.row_ptr) >= 0).all()
    assert first.source.min() >= 0
    assert first.source.max() < 2000
    np.testing.assert_array_equal(first.row_ptr, second.row_ptr)
    np.testing.assert_array_equal(first.source, second.source)
    assert (np.bincount(first.destination, minlength=2000) == np.diff(first.row_ptr)).all()


def test_heavy_tail_has_hubs_of_one_percent() -> None:
    degrees = np.diff(graphs.heavy_tailed(50_000, 16).row_ptr)
    assert 400 <= degrees.max() <= 501
    assert np.median(degrees) < 8


def _case(answers: dict[str, float], bars: tuple = ()) -> TimedCase:
    contestants = [
        Contestant(name, lambda value=value: lambda: (np.array([value]),))
        for name, value in answers.items()
    ]
    return TimedCase("trial", {"N": 1}, lambda: ([np.array([1.0])], contestants), bars)


def test_case_times_all_and_judges_bars() -> None:
    case = _case({"tiga": 1.0, "peer": 1.0}, (AtLeast(("peer",), 0.0), AtLeast(("gone",), 1.0)))
    measured = case.run(Options(seconds=0.1))
    assert set(measured.readings) == {"tiga", "peer"}
    assert measured.readings["tiga"].count >= 3
    assert set(measured.ratios) == {"peer"}
    assert [verdict.met for verdict in measured.verdicts] == [True, None]


def test_wrong_answer_is_not_timed() -> None:
    with pytest.raises(WrongAnswer, match=r"peer: output 0 is off by 0\.5"):
        _case({"tiga": 1.0, "peer": 1.5}).run(Options(seconds=0.1))


def test_nan_is_a_wrong_answer() -> None:
    with pytest.raises(WrongAnswer):
        _case({"tiga": float("nan")}).run(Options(seconds=0.1))


def test_errors_are_relative_and_want_equal_shapes() -> None:
    assert relative_error(np.zeros(3), np.zeros((3, 1))) == float("inf")
    assert relative_norm(np.zeros(3), np.zeros((3, 1))) == float("inf")
    assert relative_norm(np.array([3.0, 8.0]), np.array([3.0, 4.0])) == 0.8
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5


def test_missing_and_skipped_contestants_are_left_out() -> None:
    answer = [np.array([1.0])]
    contestants = [
        Contestant("here", lambda: lambda: answer),
        Contestant("absent", lambda: lambda: answer, requires="no_such_package"),
        Contestant("nameless", lambda: lambda: answer, requires="tiga:no_such_name"),
        Contestant("skipped", lambda: lambda: answer),
    ]
    case = TimedCase("trial", {}, lambda: (answer, contestants), ())
    measured = case.run(Options(seconds=0.1, skip=frozenset({"skipped"})))
    assert list(measured.readings) == ["here"]
    assert measured.notes == (
        "absent: there is no no_such_package here",
        "nameless: there is no tiga:no_such_name here",
    )


def test_bar_takes_the_better_peer() -> None:
    ratios = {"slow": spread([4.0]), "fast": spread([1.1])}
    measured = Measured("trial", "ms", {}, {"tiga": spread([2.0])}, ratios)
    verdict = AtLeast(("slow", "fast"), 1.2).judge(measured)
    assert (verdict.value, verdict.met) == (1.1, False)
    assert AtMost(2.5).judge(measured).met
    assert not AtMost(1.5).judge(measured).met


def test_reports(tmp_path: Path) -> None:
    measured = _case({"tiga": 1.0, "peer": 1.0}, (AtLeast(("peer",), 0.0),)).run(Options(0.1))
    report.write_json([measured], tmp_path / "results.json")
    report.write_markdown([measured], tmp_path / "results.md")
    report.write_plot([measured], tmp_path / "ratios.png")
    (case,) = json.loads((tmp_path / "results.json").read_text())["cases"]
    assert case["name"] == "trial"
    assert case["verdicts"][0]["met"] is True
    assert "| trial |" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
