"""A replay, without a GPU: what it launches, and where it does not lead."""

import ctypes
from weakref import ref

import pytest
import torch

import tiga as tg
from tiga.backends.triton.record import DeviceAction, Record
from tiga.frontends.torch import gpu_replay
from tiga.frontends.torch.gpu_replay import Replay
from tiga.runtime.functions import Slots

CPU = torch.device("cpu")


@pytest.fixture
def launched(monkeypatch):
    """The first three slots at every launch, and the stream."""
    monkeypatch.setattr(gpu_replay, "_current_device", lambda: None)
    monkeypatch.setattr(gpu_replay, "_current_stream", lambda index: 77)
    return []


@pytest.fixture
def record(launched):
    slots = Slots(3, [5])
    table = slots.table([0, 1, 2])

    def launch(stream):
        places = (ctypes.c_uint64 * 3).from_address(table.value)
        taken = [ctypes.c_uint64.from_address(place).value for place in places]
        launched.append((stream.value, taken))

    return Record((), 0, slots, (DeviceAction(launch),), CPU, ())


@pytest.fixture
def topology():
    return tg.Graph.from_csr([0, 1, 2], [0, 1]).snapshot()


@pytest.fixture
def replay(record, topology):
    outputs = (((2,), torch.float32),)
    return Replay(ref(topology), CPU, (torch.float32, torch.float32), outputs, ref(record))


def test_it_fills_in_addresses_and_launches(replay, launched):
    x, y = torch.zeros(8), torch.zeros(8)
    (out,) = replay.run([x, y])
    assert launched == [(77, [x.data_ptr(), y.data_ptr(), out.data_ptr()])]
    assert (out.shape, out.dtype) == ((2,), torch.float32)


def test_numbers_become_tensors_once(replay, launched):
    x = torch.zeros(8)
    for _ in range(2):
        replay.run([x, 0.5])
    (_, first), (_, second) = launched
    assert first[1] == second[1]
    replay.run([x, 1.5])
    assert launched[2][1][1] != first[1]


def test_it_leads_nowhere_with_other_tensors(replay, launched, monkeypatch):
    x = torch.zeros(8)
    assert replay.run([x, torch.zeros(9)[1:]]) is None  # an odd address
    assert replay.run([x, torch.zeros(8, device="meta")]) is None
    assert replay.run([x, "2"]) is None
    monkeypatch.setattr(gpu_replay, "_current_device", lambda: 1)
    assert replay.run([x, x]) is None
    assert launched == []


def test_it_keeps_no_record_alive(topology, launched):
    record = Record((), 0, Slots(0, []), (), CPU, ())
    replay = Replay(ref(topology), CPU, (), (), ref(record))
    assert replay.run([]) == []
    del record
    assert replay.run([]) is None
