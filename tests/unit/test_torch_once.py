"""What differs from call to call is seen or refused: `edge` runs once per program."""

import ctypes
import datetime
import functools
import itertools
import multiprocessing
import random
import threading
import time
import types
import weakref
from random import uniform
from time import monotonic

import numpy as np
import pytest
import torch

import tiga as tg
from tests.guarded import GRAPH, Base, X
from tests.oracle import OracleExecutable
from tiga import errors
from tiga.frontends.torch import unit

RNG, STATE, TWISTER = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
NUMBERS = iter([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """What is read does not depend on how programs run."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


def reading(tell, **attributes):
    """A kernel whose messages are scaled by what `tell` reads of it."""
    made = type("Kernel", (Base,), {"edge": lambda self, src, dst, edge: src.x * tell(self)})()
    vars(made).update(attributes)
    return made


def _clock_imported_inside(self):
    import time as _  # noqa: F401
    from time import perf_counter

    return perf_counter()


def _numbers():
    yield 1.0


REFUSED = {
    "time": (reading(lambda self: time.time()), "time.time"),
    "a clock of its own name": (reading(lambda self: monotonic()), "time.monotonic"),
    "a clock imported inside": (reading(_clock_imported_inside), "time.perf_counter"),
    "today": (reading(lambda self: datetime.datetime.now().minute), "datetime.now"),
    "an iterator": (reading(lambda self: next(NUMBERS)), "`NUMBERS`, which is an iterator"),
    "an endless one": (
        reading(lambda self: next(self.count), count=itertools.count()), "`count`",
    ),
    "a generator function's": (
        reading(lambda self: sum(self.numbers), numbers=_numbers()), "`numbers`",
    ),
    "numpy's generator": (reading(lambda self: float(RNG.random())), "draws numbers"),
    "numpy's older one": (reading(lambda self: STATE.rand()), "draws numbers"),
    "Python's": (reading(lambda self: TWISTER.random()), "draws numbers"),
    "a function of the shared one": (reading(lambda self: uniform(0, 1)), "draws numbers"),
    "torch's, of one's own": (
        reading(lambda self: torch.rand(2, generator=torch.Generator())), "torch.Generator",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_from_call_to_call_is_refused(name):
    made, text = REFUSED[name]
    with pytest.raises(errors.InvalidValue, match=text) as raised:
        made(graph=GRAPH, ndata={"x": X})
    assert "test_torch_once.py:" in str(raised.value)


def test_clocks_and_iterators_beside_a_message_are_not():
    class Timed(Base):
        timed = False

        def __init__(self):
            self.batches, self.began = iter([1]), time.time()

        def elapsed(self):
            return time.time() - self.began

        def edge(self, src, dst, edge):
            time.sleep(0)
            return src.x * (self.elapsed() if self.timed else 2.0)

    made = Timed()
    made.check()
    assert made.elapsed() >= 0


def _dispatched():
    gain = [2.0]

    @functools.singledispatch
    def scale(kind):
        return gain[0]

    return scale, gain


def _mutable():
    """By name: a kernel that reads what its code has no name for, and a change of it."""
    scale, gain = _dispatched()
    other, _ = _dispatched()
    number, shared = ctypes.c_float(2.0), multiprocessing.Value("d", 2.0)
    boxed, local = np.array([{"gain": 2.0}], dtype=object), threading.local()
    weak, keyed = weakref.WeakKeyDictionary(), types.SimpleNamespace
    local.gain = 2.0
    weak[keyed] = 2.0
    wrapped = torch.no_grad()(lambda x: x * gain[0])
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
    optimiser.step()
    return {
        "what a dispatched function reads": (
            reading(lambda self: scale(1)), lambda: gain.__setitem__(0, 3.0),
        ),
        "what a function is dispatched to": (
            reading(lambda self: other(1)), lambda: other.register(int, lambda kind: 3.0),
        ),
        "memory of C": (
            reading(lambda self: number.value), lambda: setattr(number, "value", 3.0),
        ),
        "shared memory": (
            reading(lambda self: shared.value), lambda: setattr(shared, "value", 3.0),
        ),
        "objects in an array": (
            reading(lambda self: boxed[0]["gain"]), lambda: boxed[0].update(gain=3.0),
        ),
        "a value of a thread": (
            reading(lambda self: local.gain), lambda: setattr(local, "gain", 3.0),
        ),
        "a dict of weak keys": (
            reading(lambda self: weak[keyed]), lambda: weak.__setitem__(keyed, 3.0),
        ),
        "a schedule of learning rates": (
            reading(lambda self: schedule.get_last_lr()[0]), schedule.step,
        ),
        "a function that a library wraps": (
            reading(lambda self: wrapped(1.0)), lambda: gain.__setitem__(0, 4.0),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", _mutable())
def test_what_names_do_not_lead_to(name):
    made, change = _mutable()[name]
    made.check()
    change()
    made.check()


def test_each_thread_reads_its_own():
    local = threading.local()
    local.gain = 2.0
    made, found = reading(lambda self: local.gain), []
    made.check()

    def elsewhere():
        local.gain = 3.0
        found.append(made(graph=GRAPH, ndata={"x": X}))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], 1.5 * made(graph=GRAPH, ndata={"x": X}))


def test_whether_gradients_are_enabled():
    made = reading(lambda self: 2.0 if torch.is_grad_enabled() else 3.0)
    made.check()
    with torch.no_grad():
        made.check()
    made.check()


TOLD = {
    "requires_grad": lambda x: 2.0 if x.requires_grad else 3.0,
    "is_leaf": lambda x: 2.0 if x.is_leaf else 3.0,
    "grad_fn": lambda x: 2.0 if x.grad_fn is None else 3.0,
    "grad": lambda x: 2.0 if x.grad is None else 3.0,
}


@pytest.mark.parametrize("name", TOLD)
def test_a_value_does_not_tell_whether_it_has_gradients(name):
    tell = TOLD[name]

    class Asks(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * tell(src.x)

    with pytest.raises(errors.InvalidValue, match=rf"\.?{name}` ") as raised:
        Asks()(graph=GRAPH, ndata={"x": X})
    assert "test_torch_once.py:" in str(raised.value)
