"""Settings: environment under scope, each checked where it is read."""

import os
import threading
from pathlib import Path

import pytest

from tiga import errors, knobs


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite's own setting is none of these tests'."""
    monkeypatch.delenv("TIGA_KERNEL_CACHE")


def test_defaults() -> None:
    assert knobs.current() == knobs.Knobs(
        strict=False, dump=None, verify=1, num_threads=None, memory_bound=64 * 2**20
    )


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TIGA_STRICT", "1", "strict", True),
        ("TIGA_STRICT", "off", "strict", False),
        ("TIGA_DUMP", "stages", "dump", Path("stages")),
        ("TIGA_DUMP", "", "dump", None),
        ("TIGA_VERIFY", "2", "verify", 2),
        ("TIGA_NUM_THREADS", "3", "num_threads", 3),
        ("TIGA_MEMORY_BOUND", "4096", "memory_bound", 4096),
        ("TIGA_MEMORY_BOUND", "2MiB", "memory_bound", 2 * 2**20),
        ("TIGA_MEMORY_BOUND", "1 GiB", "memory_bound", 2**30),
        ("TIGA_KERNEL_CACHE", "64MiB", "kernel_cache", 64 * 2**20),
        ("TIGA_KERNEL_CACHE", "0", "kernel_cache", 0),
        ("TIGA_KERNEL_CACHE", "off", "kernel_cache", 0),
    ],
)
def test_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(knobs.current(), name) == value


def test_environment_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_STRICT", "1")
    assert knobs.current().strict
    monkeypatch.delenv("TIGA_STRICT")
    assert not knobs.current().strict


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TIGA_STRICT", "maybe", "one of 1, true"),
        ("TIGA_VERIFY", "3", "0, 1 or 2"),
        ("TIGA_NUM_THREADS", "0", "at least 1"),
        ("TIGA_NUM_THREADS", "two", "at least 1"),
        ("TIGA_MEMORY_BOUND", "5 apples", "64MiB"),
        ("TIGA_MEMORY_BOUND", "MiB", "64MiB"),
        ("TIGA_KERNEL_CACHE", "some", "1GiB, or 0"),
    ],
)
def test_bad_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, expected: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(errors.InvalidValue, match=f"{variable}.*{expected}.*got '{text}'"):
        knobs.current()


def test_scopes_nest_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_NUM_THREADS", "4")
    with knobs.scope(num_threads=2, strict=True) as outer:
        assert (outer.num_threads, outer.strict) == (2, True)
        with knobs.scope(num_threads=None) as inner:
            assert (inner.num_threads, inner.strict) == (None, True)
        assert knobs.current() == outer
    assert (knobs.current().num_threads, knobs.current().strict) == (4, False)


def test_scope_ends_on_error() -> None:
    with pytest.raises(RuntimeError, match="body"), knobs.scope(strict=True):
        raise RuntimeError("body")
    assert not knobs.current().strict


def test_scope_stays_in_its_thread() -> None:
    seen = []
    with knobs.scope(strict=True):
        thread = threading.Thread(target=lambda: seen.append(knobs.current().strict))
        thread.start()
        thread.join()
    assert seen == [False]


def test_bad_scope() -> None:
    with pytest.raises(errors.InvalidType, match=r"one of strict, dump.*got 'treads'"):
        knobs.scope(treads=1).__enter__()
    with pytest.raises(errors.InvalidValue, match=r"num_threads=\): expected.*got 0"):
        knobs.scope(num_threads=0).__enter__()
    assert knobs.current() == knobs.Knobs()


def test_table_says_what_each_knob_means() -> None:
    assert 0 < len(knobs.TABLE) <= 10
    for knob in knobs.TABLE:
        assert knob.metadata["variable"] == f"TIGA_{knob.name.upper()}"
        assert knob.metadata["meaning"]


def test_a_variable_is_what_the_environment_holds_now(monkeypatch):
    monkeypatch.delenv("TIGA_MADE_UP", raising=False)
    variable = knobs.Variable("TIGA_MADE_UP")
    assert variable() is None
    for text in ("", "3,2", "größe"):
        monkeypatch.setenv("TIGA_MADE_UP", text)
        assert variable() == text
    monkeypatch.setattr(os, "environ", {"TIGA_MADE_UP": "größe"})
    assert knobs.Variable("TIGA_MADE_UP")() == "größe"
