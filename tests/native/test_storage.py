"""Storage: views, writes in place and their versions, interchange, what is kept alive."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga import errors


def test_metadata() -> None:
    x = tg.tensor(np.arange(24.0).reshape(2, 3, 4))
    assert (x.shape, x.dtype, x.strides, x.offset) == ((2, 3, 4), tg.float64, (12, 4, 1), 0)
    assert (x.ndim, x.size, x.nbytes, x.version) == (3, 24, 192, 0)
    assert x.device == "cpu"
    assert x.is_contiguous
    assert x.ready_event.query()
    part = x[1, :, 2]
    assert (part.shape, part.strides, part.offset) == ((3,), (4,), 14)
    assert not part.is_contiguous


def test_views_share_storage() -> None:
    x = tg.arange(12)
    views = [
        x.reshape(3, 4), x.reshape(3, 4).T, x[1:10:3], x.expand_dims(0), x.detach(),
        x.reshape(3, 1, 4).squeeze(1), tg.broadcast_to(x.reshape(3, 1, 4), (3, 2, 4)),
    ]  # fmt: skip
    x[4] = 100
    for view in views:
        assert 100 in view.numpy()
        assert view.version == 1
    views[0].fill_(7)
    assert set(x.tolist()) == {7}
    copy = views[1].reshape(12)
    x.zero_()
    assert set(copy.tolist()) == {7}


def test_views_of_values_that_wait() -> None:
    y = tg.arange(6) * 2
    view = y.reshape(2, 3).T
    y.add_(1)
    assert view.tolist() == [[1, 7], [3, 9], [5, 11]]
    assert view.version == 1


def test_waiting_expressions_keep_the_old_value() -> None:
    x = tg.tensor([1.0, 2.0])
    before = x * 10.0
    x.add_(1.0)
    assert before.tolist() == [10.0, 20.0]
    assert (x * 10.0).tolist() == [20.0, 30.0]


def test_equal_expressions_have_storage_of_their_own() -> None:
    x = tg.tensor([1.0, 2.0])
    a, b = x + 1.0, x + 1.0
    a.realize()
    a.add_(5.0)
    assert b.tolist() == [2.0, 3.0]


def test_updates_in_place() -> None:
    x = tg.tensor([1.0, 2.0, 3.0])
    assert x.mul_(2.0) is x
    x.sub_(tg.tensor([0.0, 1.0, 2.0]), alpha=2)
    assert x.tolist() == [2.0, 2.0, 2.0]
    x.copy_(tg.arange(3))
    x.div_(2.0)
    x[1:] = tg.tensor([5.0, 6.0])
    x[x > 5.5] = -1.0
    assert x.tolist() == [0.0, 5.0, -1.0]
    assert x.version == 6
    x[:2] = x[1:]
    assert x.tolist() == [5.0, -1.0, -1.0]


def test_autograd_catches_a_changed_value() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    x.add_(1.0)
    with pytest.raises(errors.InvalidValue, match="changed in place"):
        tg.autograd.grad(y, x)
    z = (x * x).sum()
    assert tg.autograd.grad(z, x).tolist() == [4.0, 6.0]
    scale = tg.tensor([3.0])
    loss = (x * scale).sum()
    scale.mul_(2.0)
    with pytest.raises(errors.InvalidValue, match="changed in place"):
        tg.autograd.grad(loss, x)


def test_writes_that_are_refused() -> None:
    x = tg.ones(3, requires_grad=True)
    with pytest.raises(errors.InvalidValue, match=r"leaf that requires .*test_storage.py:\d+"):
        x.add_(x * 2.0)
    with pytest.raises(errors.InvalidValue, match="leaf that requires"):
        x[1:].mul_(3.0)
    with pytest.raises(errors.InvalidValue, match="expanded"):
        tg.broadcast_to(tg.ones(1), (3,)).add_(1.0)
    with pytest.raises(errors.InvalidValue, match="does not fit"):
        tg.ones(3).add_(tg.ones((2, 3)))
    with pytest.raises(errors.InvalidIndex, match="out of bounds"):
        tg.ones(3)[5] = 1.0
    with pytest.raises(errors.InvalidValue, match="assignment to a part"):
        tg.ones(3)[:2] = tg.ones(3)
    with pytest.raises(errors.InvalidType, match="complex"):
        tg.ones(3).add_(1j)
    with pytest.raises(errors.InvalidValue, match="does not fit in int8"):
        tg.ones(3, dtype=tg.int8).fill_(1000)


operations = st.lists(
    st.tuples(st.sampled_from(["whole", "part", "turned", "flat"]), st.integers(-3, 3)), max_size=8
)


@settings(max_examples=40)
@given(operations, st.integers(1, 3), st.integers(1, 4))
def test_writes_through_views_are_numpy_s(steps: list, rows: int, columns: int) -> None:
    array = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
    x = tg.tensor(array)
    mine = {"whole": x, "part": x[:, ::2], "turned": x.T, "flat": x.reshape(-1)}
    theirs = {"whole": array, "part": array[:, ::2], "turned": array.T, "flat": array.reshape(-1)}
    for place, number in steps:
        waiting, expected = mine["whole"] * 2.0, array * 2.0
        mine[place].add_(float(number))
        theirs[place][...] += number
        np.testing.assert_array_equal(waiting.numpy(), expected)
        for name, view in mine.items():
            np.testing.assert_array_equal(view.numpy(), theirs[name])


shapes = st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3).map(tuple)


@settings(max_examples=40)
@given(shapes, shapes)
def test_broadcasting_is_numpy_s(left: tuple, right: tuple) -> None:
    a, b = np.ones(left), np.full(right, 2.0)
    try:
        want = a + b
    except ValueError:
        with pytest.raises(errors.InvalidValue, match="do not broadcast"):
            tg.tensor(a) + tg.tensor(b)
        return
    got = tg.tensor(a) + tg.tensor(b)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


def test_numpy_shares_memory_both_ways() -> None:
    array = np.zeros(3, np.float32)
    x = tg.from_numpy(array)
    x.add_(1.0)
    assert array.tolist() == [1.0, 1.0, 1.0]
    x.numpy()[0] = 9
    assert array[0] == 9
    assert np.asarray(x * 2).tolist() == [18.0, 2.0, 2.0]
    reversed_ = tg.from_numpy(array[::-1])
    assert reversed_.tolist() == [1.0, 1.0, 9.0]
    with pytest.raises(errors.InvalidType, match="no Tiga dtype"):
        tg.from_numpy(np.array(["a"]))


def test_dlpack_both_ways() -> None:
    x = tg.arange(6).reshape(2, 3).T
    there = np.from_dlpack(x)
    assert there.tolist() == x.tolist()
    x.fill_(3)
    assert there[0, 0] == 3
    assert x.__dlpack_device__() == (1, 0)
    x.__dlpack__(max_version=(1, 0))
    copied = np.from_dlpack(x, copy=True)
    x.zero_()
    assert copied[0, 0] == 3
    back = tg.from_dlpack(np.arange(3.0))
    assert back.dtype == tg.float64
    with pytest.raises(errors.InvalidType, match="__dlpack__"):
        tg.from_dlpack([1, 2])
    with pytest.raises(errors.InvalidType, match="on the CPU"):
        x.__dlpack__(dl_device=(2, 0))


def test_torch_shares_memory_both_ways() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(6.0).reshape(2, 3).t().requires_grad_()
    x = tg.from_torch(t)
    assert x.requires_grad
    assert x.strides == (1, 3)
    with torch.no_grad():
        t[0, 0] = 42
    assert x.numpy()[0, 0] == 42
    half = tg.from_torch(torch.ones(2, dtype=torch.bfloat16))
    assert half.dtype == tg.bfloat16
    assert half.to_torch().dtype == torch.bfloat16
    out = (x * 2).to_torch()
    assert isinstance(out, torch.Tensor)
    assert out[0, 0] == 84
    assert torch.from_dlpack(tg.arange(3)).tolist() == [0, 1, 2]
    assert tg.from_dlpack(torch.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(errors.InvalidType, match="dense tensor"):
        tg.from_torch(torch.eye(2).to_sparse())


def test_functions_of_torch_tensors_are_torch_s() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([0.5, 1.0])
    assert torch.equal(tg.exp(t), t.exp())
    assert torch.equal(tg.where(t > 0.7, t, 0.0), torch.where(t > 0.7, t, 0.0))
    assert tg.sum(t).item() == 1.5
    assert tg.max(t, axis=0).item() == 1.0
    assert torch.allclose(tg.softmax(t), t.softmax(-1))
    assert tg.logsumexp(t).item() == pytest.approx(t.logsumexp(0).item())


def test_nothing_is_kept_alive() -> None:
    x = tg.tensor(np.ones(4, np.float32))
    y = (x * 2.0).realize()
    memory = weakref.ref(y._buffer)
    del y
    gc.collect()
    assert memory() is None


def test_a_loop_does_not_grow() -> None:
    code = (
        "import pathlib, tiga as tg\n"
        "def peak():  # in KiB; of this program only, which getrusage counts with who started it\n"
        "    lines = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
        "    return int(next(x for x in lines if x.startswith('VmHWM')).split()[1])\n"
        "x = tg.ones(250_000)\n"
        "def loop(n):\n"
        "    global x\n"
        "    for _ in range(n):\n"
        "        x = (x * 0.5 + 1.0).realize()\n"
        "        x.add_(1.0)\n"
        "loop(50)\n"
        "before = peak()\n"
        "loop(300)\n"
        "print(peak() - before)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 20_000, "KiB of growth over 300 steps of 1 MB"


def test_prepared_programs_read_what_inputs_hold_now() -> None:
    a = tg.tensor(np.arange(8, dtype=np.float32))
    y = ((a * 2.0 + 1.0) * a).prepare()
    a.fill_(3.0)
    assert y().tolist() == [21.0] * 8
    table = tg.ones((4, 4))
    total = tg.softmax(table @ table, axis=1).sum(0)
    run = total.prepare()
    table[0, 0] = 5.0
    want = tg.softmax(table @ table, axis=1).sum(0).tolist()
    assert run().tolist() == pytest.approx(want)
    with pytest.raises(errors.InvalidValue, match="given one"):
        a.prepare()


def test_inspection() -> None:
    x = tg.tensor([1.0, 2.0])
    y = tg.exp(x) + 1.0
    assert "gf_tensor.exp" in y.mlir(verify=True)
    assert y.mlir() == (tg.exp(tg.tensor([5.0, 6.0])) + 1.0).mlir()
    assert "test_storage.py" in y.expression()
    assert "scf.for" in y.generated_code("loops")
    assert "define" in y.generated_code("llvm")
    y.realize()
    assert "gf_tensor.exp" in y.mlir()
    with pytest.raises(errors.InvalidValue, match="gf_tensor, loops, llvm"):
        y.generated_code("ptx")
    assert repr(tg.tensor([1, 2])) == "tensor([1, 2], dtype=int64)"


def test_a_bridge_into_torch_s_graph() -> None:
    torch = pytest.importorskip("torch")
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([3.0, 4.0], requires_grad=True)
    x, y = tg.from_torch(a * 2, connect=True), tg.from_torch(b, connect=True)
    out = (tg.exp(x) * y).sum().to_torch()
    (out * 3).backward()
    torch.testing.assert_close(a.grad, 6 * torch.exp(2 * a.detach()) * b.detach())
    torch.testing.assert_close(b.grad, 3 * torch.exp(2 * a.detach()))
    with pytest.raises(errors.InvalidValue, match="requires grad"):
        tg.from_torch(torch.ones(2), connect=True)


def test_shape_specializer() -> None:
    c = tg.compiler
    n, m = c.Dim("n", minimum=2, multiple_of=2), c.Dim("m")
    made = []

    def build(binding):
        made.append(binding.dimensions)
        return lambda a, b: a @ b

    product = c.ShapeSpecializer([c.TensorSpec((n, m)), c.TensorSpec((m, 3))], build)
    product(tg.ones((4, 5)), tg.ones((5, 3)))
    product(tg.ones((4, 5)), tg.ones((5, 3)))
    product(tg.ones((2, 5)), tg.ones((5, 3)))
    assert (product.hits, product.misses, product.specialization_count) == (1, 2, 2)
    assert made == [{"n": 4, "m": 5}, {"n": 2, "m": 5}]
    for values, message in [
        ((tg.ones((3, 5)), tg.ones((5, 3))), "multiple of 2"),
        ((tg.ones((4, 5)), tg.ones((6, 3))), "'m' is 5 elsewhere"),
        ((tg.ones((4, 5)), tg.ones((5, 4))), "expected extent 3"),
        ((tg.ones(4), tg.ones((5, 3))), "expected 2 axes"),
    ]:
        with pytest.raises(errors.InvalidValue, match=message):
            product(*values)
    with pytest.raises(errors.InvalidType, match="expected float32"):
        product(tg.ones((4, 5), dtype=tg.float64), tg.ones((5, 3)))
    with pytest.raises(errors.InvalidType, match="expected 2 arguments"):
        product(tg.ones((4, 5)))


def test_expressions_keep_the_old_value_when_their_tensor_is_gone() -> None:
    base = tg.arange(6)
    doubled = base * 2
    x = base.reshape(2, 3)
    tens = x * 10
    flat = x.T
    turned = flat + 100
    del base
    x.add_(1)
    assert doubled.tolist() == [0, 2, 4, 6, 8, 10]
    assert tens.tolist() == [[0, 10, 20], [30, 40, 50]]
    assert turned.tolist() == [[100, 103], [101, 104], [102, 105]]
    assert flat.tolist() == [[1, 4], [2, 5], [3, 6]]
    again = x * 10
    flat.zero_()
    assert again.tolist() == [[10, 20, 30], [40, 50, 60]]


def test_a_write_without_readers_copies_nothing() -> None:
    x = tg.ones(4)
    node = weakref.ref(x._node)
    x.add_(1.0)
    assert node() is None


def test_expressions_on_a_value_that_is_written_later() -> None:
    y = tg.ones(3) * 2.0
    z = y + 1.0
    y.realize()
    y.add_(10.0)
    assert z.tolist() == [3.0, 3.0, 3.0]
    assert (y + 1.0).tolist() == [13.0, 13.0, 13.0]


def test_connected_expressions_have_second_derivatives() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (tg.from_torch(t, connect=True) ** 3).sum().to_torch()
    (first,) = torch.autograd.grad(y, t, create_graph=True)
    assert first.tolist() == [3.0, 12.0]
    (second,) = torch.autograd.grad((first * first).sum(), t, create_graph=True)
    assert second.tolist() == [36.0, 288.0]
    (third,) = torch.autograd.grad(second.sum(), t)
    assert third.tolist() == [108.0, 432.0]


def test_a_connected_expression_is_used_once_unless_kept() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (tg.from_torch(t, connect=True) ** 2).sum().to_torch()
    y.backward(retain_graph=True)
    y.backward()
    assert t.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_connected_input_that_was_written_is_noticed() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (tg.from_torch(t, connect=True) ** 2).sum().to_torch()
    with torch.no_grad():
        t.add_(1.0)
    with pytest.raises(RuntimeError, match="inplace"):
        y.backward()
