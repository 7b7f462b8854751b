"""Native tensors on a GPU as objects: memory, writes, derivatives, sharing, refusals; no torch."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tests.gpu.test_native_numbers import on_both
from tiga import errors
from tiga.types import DType, bfloat16, bool_, complex64, float32


def test_views_and_writes_in_place() -> None:
    x = tg.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4), device="cuda")
    row, column = x[1], x[:, 2]
    waiting = x * 10
    assert (row.strides, column.strides, column.offset) == ((1,), (4,), 2)
    x.add_(1)
    column.fill_(0)
    x[2, 1:3] = tg.tensor([50.0, 60.0], device="cuda")
    assert row.tolist() == [5.0, 6.0, 0.0, 8.0]
    assert x[2].tolist() == [9.0, 50.0, 60.0, 12.0]
    assert (x.version, row.version) == (3, 3)
    assert waiting[0].tolist() == [0.0, 10.0, 20.0, 30.0]
    with pytest.raises(
        errors.InvalidValue, match=r"are on the CPU.*test_native_tensors|on the CPU"
    ):
        x.copy_(tg.ones((3, 4)))


def test_derivatives_of_every_order_and_across_devices() -> None:
    x = tg.tensor([0.5, -1.0, 2.0], device="cuda", requires_grad=True)
    first = tg.autograd.grad((tg.sin(x) * x).sum(), x)
    second = tg.autograd.grad(first.sum(), x)
    a = np.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(second.tolist(), 2 * np.cos(a) - a * np.sin(a), rtol=1e-5)
    assert tg.autograd.grad(x.sum(), x).device == "cuda"
    host = tg.tensor([1.0, 2.0], requires_grad=True)
    there = host.cuda()
    back = (there * there).cpu()
    gradient = tg.autograd.grad((back * back).sum(), host)
    assert gradient.device == "cpu"
    assert gradient.tolist() == [4.0, 32.0]


def test_gradients_of_picks() -> None:
    x = tg.tensor(np.arange(8.0, dtype=np.float32).reshape(4, 2), device="cuda").requires_grad_()
    picked = tg.take(x, tg.tensor([1, 1, 3], device="cuda"), axis=0)
    assert tg.autograd.grad((picked * picked).sum(), x).tolist() == [
        [0, 0], [8, 12], [0, 0], [12, 14],
    ]  # fmt: skip


def test_prepared_calls_and_texts() -> None:
    x = tg.tensor(np.ones((4, 8), np.float32), device="cuda")
    y = (x * 3.0).sum(axis=1)
    run = y.prepare()
    x.fill_(2.0)
    assert run().tolist() == [48.0] * 4
    assert y.execution["backend"] == "cuda-triton"
    assert "tl.sum" in y.generated_code("triton")
    share = tg.softmax(x, axis=1).realize()
    again = share.prepare()
    x[:, 0] = -np.inf
    np.testing.assert_allclose(again().tolist(), [[0.0, *[1 / 7] * 7]] * 4, rtol=1e-6)
    with pytest.raises(errors.InvalidValue, match="triton, ttir, ptx"):
        y.generated_code("llvm")


def test_events_tell_when_values_are_ready() -> None:
    x = (tg.ones((1000, 1000), device="cuda") * 2.0).realize()
    event = x.ready_event
    event.wait()
    assert event.query()
    assert event.ready


def test_refusals_name_the_line() -> None:
    x = tg.tensor([3.0, 1.0, 2.0], device="cuda")
    with pytest.raises(errors.InvalidType, match=r"x\.cpu\(\)\.numpy\(\)"):
        x.numpy()
    with pytest.raises(errors.InvalidValue, match=r"on cpu and cuda \(built at .*test_native"):
        (x + tg.ones(3)).realize()
    with pytest.raises(errors.InvalidType, match=r"not pickled .*x\.cpu"):
        pickle.dumps(x._array)
    with pytest.raises(errors.InvalidIndex, match=r"out of range for extent 3 .*test_native"):
        tg.take(x, tg.tensor([0, 3], device="cuda"), axis=0).realize()
    assert (x + 1.0).tolist() == [4.0, 2.0, 3.0]


def test_copies_and_pickles_stay_on_the_gpu() -> None:
    x = tg.tensor([3.0, 1.0, 2.0], device="cuda", requires_grad=True)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert made.device == "cuda"
        assert made.requires_grad
        assert made.tolist() == [3.0, 1.0, 2.0]


def test_scalars_of_the_cpu_go_with_a_gpu() -> None:
    x = tg.tensor([1.0, 2.0], device="cuda")
    assert (x * tg.tensor(3.0)).tolist() == [3.0, 6.0]
    with pytest.raises(errors.InvalidValue, match="on cpu and cuda"):
        (x * tg.tensor([1.0, 2.0])).tolist()


def test_budgets_hold_on_a_device() -> None:
    with tg.execution(device="cuda", memory={"device": "4KiB"}) as run:
        x = tg.ones(512)
        assert x.device == "cuda"
        assert run.memory_report()["live_bytes"]["device"] == 2048
        with pytest.raises(errors.OutOfBudget, match="tier 'device'"):
            tg.ones(1024)
        del x
        assert run.memory_report()["live_bytes"]["device"] == 0
        assert run.memory_report()["peak_bytes"]["device"] == 2048


def test_constructors_take_a_device() -> None:
    array = np.arange(3.0, dtype=np.float32)
    made = [
        tg.asarray(array, device="cuda"), tg.tensor([0.0, 1.0, 2.0], device="cuda"),
        tg.from_numpy(array).cuda(), tg.asarray(tg.from_numpy(array), device="cuda"),
        tg.arange(0.0, 3.0, device="cuda"), tg.linspace(0.0, 2.0, 3, device="cuda"),
        tg.zeros_like(tg.ones(3, device="cuda")) + tg.asarray(array, device="cuda"),
    ]  # fmt: skip
    assert all(x.device == "cuda" and x.tolist() == [0.0, 1.0, 2.0] for x in made)
    with tg.execution(device="cuda"):
        assert {str(x.device) for x in (tg.ones(2), tg.eye(2), tg.tensor(1), tg.full(2, 3))} == {
            "cuda"
        }
    assert tg.ones(1).device == "cpu"


def test_empty_tensors() -> None:
    on_both(lambda x: x * 2.0, np.zeros((0, 3), np.float32))
    on_both(lambda x: tg.sum(x, axis=0), np.zeros((0, 3), np.float32))
    on_both(lambda x: tg.concat([x, x]), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("dtype", [bfloat16, float32, complex64, bool_], ids=str)
def test_memory_is_shared_by_dlpack(dtype: DType) -> None:
    x = tg.tensor(np.arange(12).reshape(3, 4), device="cuda").astype(dtype)
    same = tg.from_dlpack(x.T)
    assert same.device == "cuda"
    assert (same.shape, same.strides) == ((4, 3), (1, 4))
    x.fill_(1)
    assert same.tolist() == tg.ones((4, 3), dtype=dtype).tolist()
    if dtype != bfloat16:  # numpy has no such numbers
        np.testing.assert_array_equal(np.from_dlpack(HostView(x)), np.ones((3, 4), dtype.numpy))
    del x
    assert same.tolist() == tg.ones((4, 3), dtype=dtype).tolist()


class HostView:
    """A tensor on a GPU that is asked for on the CPU."""

    def __init__(self, tensor: tg.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("policy", ["save", "recompute"])
def test_checkpoints_of_values_on_a_gpu(policy: str) -> None:
    pytest.importorskip("torch_mlir")
    x = tg.tensor([0.5, -1.0, 2.0], device="cuda", requires_grad=True)
    y = tg.exp(tg.sin(x * 2.0)).sum()
    dx = tg.autograd.grad(y, x, checkpoint=policy)
    a = np.array([0.5, -1.0, 2.0])
    want = np.exp(np.sin(2 * a)) * np.cos(2 * a) * 2
    np.testing.assert_allclose(dx.tolist(), want, rtol=1e-5)
    assert dx.execution["backend"] == "cuda-triton"
    assert (dx.execution["saved_bytes"] > 0) == (policy == "save")


def test_what_tiga_makes_for_itself_goes_along() -> None:
    """Masks of triangles, positions from lists, units of jacobians: made on the CPU, not given."""
    x = np.random.default_rng(9).normal(size=(4, 4)).astype(np.float32)
    on_both(lambda t: tg.tril(t), x)
    on_both(lambda t: t[[2, 0, 2]], x)
    on_both(lambda t: tg.repeat(t, 2, axis=0), x)
    on_both(lambda t: tg.einsum("ii->i", t), x)
    on_both(lambda t: tg.autograd.vmap(lambda row: (row * row).sum())(t), x)
    on_both(lambda t: tg.autograd.hessian(lambda y: (tg.sin(y) * y.sum()).sum(), t[0]), x)
    on_both(lambda t: tg.autograd.jacobian(lambda y: tg.exp(y) * 2.0, t[0]), x)
    on_both(lambda t: tg.autograd.jvp(tg.sin, (t,), (tg.ones_like(t),))[1], x)


VIEWS = {
    "whole": lambda x: x, "row": lambda x: x[1], "columns": lambda x: x[:, 1:3],
    "turned": lambda x: x.transpose(0, 1), "stepped": lambda x: x[::2],
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("how", ["add", "fill", "set"])
def test_derivatives_pass_through_writes(view: str, how: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(1)
        x, y = (tg.tensor(rng.uniform(0.5, 2, (3, 4)), device=device, requires_grad=True)
                for _ in range(2))  # fmt: skip
        base = x * 1.5
        kept, squares = base[:, 1:], base * base
        part = VIEWS[view](base)
        picked = y.reshape(12)[: part.size].reshape(part.shape)
        if how == "add":
            part.add_(picked)
        elif how == "fill":
            part.fill_(2.0)
        else:
            part[...] = picked * 0.5
        loss = (base * base * 0.5).sum() + (kept * squares[:, 1:]).sum()
        grads = tg.autograd.grad(loss, [x, y], allow_unused=True)
        found.append([v.cpu().numpy() for v in (base, kept, squares, *grads) if v is not None])
    assert len(found[0]) == len(found[1])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


PREPARED = {
    "products": lambda x, w: tg.softmax(x @ w, axis=1) @ w.T,
    "turned": lambda x, w: (x.T * 2.0).sum(axis=1) + (w @ w).sum(axis=0),
    "picked": lambda x, w: (
        tg.take(x * 2.0, tg.tensor([2, 0], device=x.device), axis=0).reshape(-1) + 0.0
    ),
    "sorted": lambda x, w: tg.sort(x + 1.0, axis=0).T.reshape(-1) * 3.0,
    "view": lambda x, w: (x + 1.0).T.reshape(4, 9) * w.reshape(4, 9),
}


@pytest.mark.parametrize("name", PREPARED)
def test_prepared_calls_of_several_kernels(name: str) -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(6, 6)).astype(np.float32) for _ in range(2)]
    x, w = (tg.tensor(a, device="cuda") for a in given)
    out = PREPARED[name](x, w)
    run = out.prepare()
    for _ in range(3):
        x.add_(1.0)
        given[0] = given[0] + np.float32(1)
        want = PREPARED[name](*map(tg.tensor, given)).numpy()
        assert run() is out
        np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-5, atol=1e-6)


def test_prepared_calls_use_places_again() -> None:
    """Of some twenty values, each read by the next steps only, few are needed at once."""
    x = tg.ones((8, 128), device="cuda")
    y, steps = x, 4
    for _ in range(steps):
        y = y * 2.0 - tg.cumulative_sum(y, axis=0)
    want = y.tolist()
    with tg.execution(memory={"device": "64MiB"}) as run:
        again = y.prepare()
        taken = run.memory_report()["live_bytes"]["device"]
    assert 0 < taken <= 6 * x.size * 4
    y.fill_(0.0)
    assert again().tolist() == want
    assert again().tolist() == want


def test_prepared_runs_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tg.tensor(np.ones((64, 64), np.float32), device="cuda")
    run = tg.softmax(x * 2.0, axis=0).sum(axis=1).prepare()
    array: Any = x._array
    monkeypatch.setattr(array.machine, "allocate", None)
    assert run().device == "cuda"


@pytest.mark.parametrize("dtype", [float32, bfloat16, complex64])
def test_strict_sums_add_element_after_element(dtype: DType) -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 50, 4)).astype(np.float32)
    x = tg.tensor(numbers, device="cuda").astype(dtype)
    for axes in ((1,), (0, 2), (0, 1, 2)):
        total = ((x * 2.0).sum(axis=axes) + 1.0).realize(strict=True)
        terms = np.moveaxis((x * 2.0).cpu().numpy(), axes, range(3 - len(axes), 3))
        terms = terms.reshape(*terms.shape[: 3 - len(axes)], -1)
        compute = np.float32 if dtype is bfloat16 else terms.dtype
        want = np.cumsum(terms.astype(compute), axis=-1)[..., -1].astype(terms.dtype)
        assert (total.cpu().numpy() == want + terms.dtype.type(1)).all()
        assert total.execution is not None
        assert not total.execution["relaxed_math"]
