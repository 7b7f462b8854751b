"""The native tensor end to end, without torch: the founding example and what it rests on."""

import subprocess
import sys

import pytest

import tiga as tg
from tiga import errors
from tiga.reducers.base import Reducer


def test_nothing_of_torch_is_loaded() -> None:
    code = (
        "import sys, tiga as tg\n"
        "x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
        "loss = (x * x + 2.0).sum()\n"
        "assert loss.tolist() == 20.0\n"
        "assert tg.autograd.grad(loss, x).tolist() == [2.0, 4.0, 6.0]\n"
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_tensors_are_complete_for_a_thread_that_comes_during_the_first_import() -> None:
    code = """if True:
        import importlib.abc, sys, threading
        import tiga as tg

        paused, resume, values = threading.Event(), threading.Event(), []

        class Slow(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == "tiga.frontends.tensor.functions.sorting" and not paused.is_set():
                    paused.set()
                    resume.wait(600)

        sys.meta_path.insert(0, Slow())
        first = threading.Thread(target=lambda: values.append(tg.tensor([1.0]) * 2))
        second = threading.Thread(target=lambda: values.append(tg.zeros(1) * 2))
        first.start()
        assert paused.wait(600)
        second.start()
        second.join(0.2)
        resume.set()
        first.join(), second.join()
        assert len(values) == 2
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_with_and_without_a_tensor() -> None:
    assert tg.sum(tg.tensor([[1, 2], [3, 4]]), axis=0).tolist() == [4, 6]
    assert isinstance(tg.sum(), Reducer)
    assert isinstance(tg.softmax(), Reducer)
    with pytest.raises(errors.InvalidType, match="axis= needs a tensor"):
        tg.max(axis=0)


def test_second_derivative() -> None:
    x = tg.tensor(3.0, requires_grad=True)
    first = tg.autograd.grad(x * x * x, x)
    assert first.item() == 27.0
    assert tg.autograd.grad(first, x).item() == 18.0


def test_complex_cotangents_are_conjugate_wirtinger() -> None:
    z = tg.tensor([1 + 2j, 3.0], requires_grad=True)
    unit = tg.ones(2, dtype=tg.complex64)
    assert tg.autograd.grad(tg.conj(z) * z, z, grad_output=unit).tolist() == [2 + 4j, 6]
    with pytest.raises(errors.InvalidValue, match="needs grad_output"):
        tg.autograd.grad((z * z).sum(), z)


def test_a_long_loop_stays_bounded() -> None:
    x = tg.tensor(1.0)
    for _ in range(20_000):
        x = x * 0.5 + 1.0
    assert x.item() == 2.0
    assert x._node.inputs == ()


def test_errors_name_the_line() -> None:
    x = tg.ones(3)
    with pytest.raises(errors.InvalidValue, match=r"test_first\.py:\d+"):
        x + tg.ones(2)
    with pytest.raises(errors.InvalidValue, match="equal lengths"):
        tg.tensor([[1], [2, 3]])
    with pytest.raises(errors.InvalidValue, match="truth value"):
        bool(x == x)
    with pytest.raises(errors.InvalidValue, match="does not require"):
        tg.autograd.grad(x.sum(), x)
    integers = tg.tensor([1])
    with pytest.raises(errors.InvalidType, match="only floats"):
        tg.autograd.grad(integers.sum(), integers)


def test_every_function_is_a_public_name() -> None:
    from tiga._names import FUNCTIONS

    for names in FUNCTIONS.values():
        for name in names:
            assert hasattr(tg, name)
