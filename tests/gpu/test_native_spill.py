"""Native tensors on a GPU under a budget of its memory: what leaves it and comes back; no torch."""

from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

SIZE = 1024  # float32: 4 KiB
TIERS = {"temporary-spill": {}, "pinned-spill": {"host-pinned": "1MiB"}}


def array(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


@pytest.mark.parametrize("kind", TIERS)
def test_what_was_used_longest_ago_leaves(kind: str, tmp_path: Any) -> None:
    memory = {"device": "12KiB", **TIERS[kind]}
    with tg.execution(device="cuda", memory=memory, eviction="lru", spill_dir=tmp_path) as run:
        tensors = [tg.tensor(array(i)) for i in range(5)]
        view = tensors[0][::2]
        away = [t.residency["backing"] for t in tensors]
        assert away == [kind, kind, None, None, None]
        assert tensors[0].device == "cuda"
        live = run.memory_report()["live_bytes"]
        assert live["device"] == 12 * 2**10
        assert live["host-pinned" if kind == "pinned-spill" else "nvme"] >= 8 * 2**10
        total = (tensors[0] * 2.0 + tensors[1]).sum(axis=0, keepdims=True)
        want = (array(0) * 2 + array(1)).sum(keepdims=True)
        np.testing.assert_allclose(total.cpu().numpy(), want, rtol=1e-4)
        assert (view.cpu().numpy() == array(0)[::2]).all()
        for i, tensor in enumerate(tensors):
            assert (tensor.cpu().numpy() == array(i)).all()
        report = run.memory_report()
        assert report["peak_bytes"]["device"] <= 12 * 2**10
        assert report["evictions"] >= 4
        assert report["restores"] >= 2
        assert report["bytes_spilled"] >= 16 * 2**10
    del tensors, tensor, view, total
    live = run.memory_report()["live_bytes"]
    assert live["device"] == live["host-pinned"] == 0


def test_one_tensor_leaves_by_name(tmp_path: Any) -> None:
    x = tg.tensor(array(0), device="cuda")
    y = x * 2.0
    with tg.execution(spill_dir=tmp_path):
        x.spill()
        assert x.residency == {
            "device": "cuda", "resident": False, "backing": "temporary-spill",
            "bytes": 4 * SIZE, "version": 0,
        }  # fmt: skip
        with pytest.raises(errors.InvalidState, match=r"not in memory .*test_native_spill"):
            x.spill()
        assert (y.cpu().numpy() == array(0) * 2).all()
    assert x.residency["resident"]
    x.add_(1.0)
    assert x.version == 1


def test_what_does_not_fit_is_refused_and_nothing_is_lost() -> None:
    with tg.execution(device="cuda", memory={"device": "8KiB"}, eviction="lru"):
        x, y = tg.tensor(array(0)), tg.tensor(array(1))
        with pytest.raises(errors.OutOfBudget, match="tier 'device'"):
            (x + y).realize()
        assert (x.cpu().numpy() == array(0)).all()
        assert (y.cpu().numpy() == array(1)).all()


def test_without_eviction_a_budget_is_an_error() -> None:
    with tg.execution(device="cuda", memory={"device": "6KiB"}):
        x = tg.tensor(array(0))
        with pytest.raises(errors.OutOfBudget, match="tier 'device'"):
            tg.tensor(array(1))
        assert x.residency["resident"]


def test_gradients_under_a_budget() -> None:
    weights = [array(i).reshape(32, 32) / 32 for i in range(6)]

    def gradients() -> list[np.ndarray]:
        given = [tg.tensor(w, device="cuda", requires_grad=True) for w in weights]
        x = tg.ones((4, 32), device="cuda")
        for w in given:
            x = tg.tanh(x @ w).realize()
        return [g.cpu().numpy() for g in tg.autograd.grad((x * x).sum(), given)]

    want = gradients()
    with tg.execution(memory={"device": "80KiB"}, eviction="lru") as run:
        idle = [tg.tensor(array(i), device="cuda") for i in range(12)]
        got = gradients()
        assert run.memory_report()["evictions"] > 0
        assert all((t.cpu().numpy() == array(i)).all() for i, t in enumerate(idle))
    assert all((a == b).all() for a, b in zip(got, want, strict=True))
