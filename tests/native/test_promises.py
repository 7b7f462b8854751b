"""Small promises of native tensors, each as a new user would try it."""

import copy
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest

import tiga as tg
from tiga import errors

HERE = r"test_promises\.py:\d+"


@pytest.mark.parametrize("backend", ["auto", "native", "python"])
def test_every_backend_tells_what_it_did(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    y = tg.concat([tg.ones((4, 8)) * 2.0, tg.ones((4, 8))]).sum(axis=1).realize()
    told = y.execution
    assert told is not None
    assert {"backend", "semantic_hash", "compile_ms", "launch_ms", "materialize_ms", "cache_hit",
            "saved_bytes"} <= told.keys()  # fmt: skip
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    again = tg.concat([tg.full((4, 8), 3.0) * 2.0, tg.ones((4, 8))]).sum(axis=1).realize().execution
    assert again is not None
    assert again["semantic_hash"] == told["semantic_hash"]


@pytest.mark.parametrize(
    "write", [lambda x: x.add_(1.5), lambda x: x.mul_(0.5), lambda x: x.sub_(tg.ones(3))]
)
def test_floats_are_not_written_into_integers(write: Callable[[tg.Tensor], object]) -> None:
    x = tg.arange(3)
    with pytest.raises(errors.InvalidType, match=f"would lose.*|{HERE}"):
        write(x)
    assert x.add_(tg.tensor([1, 1, 1], dtype=tg.int8)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [">f8", ">i4", ">c8"])
def test_arrays_of_the_other_byte_order_are_copied(dtype: str) -> None:
    given = np.arange(4).astype(dtype)
    assert tg.tensor(given).tolist() == given.tolist()


def test_scalars_of_numpy_keep_their_dtype() -> None:
    assert tg.tensor(np.float64(1.5)).dtype == tg.float64
    assert tg.tensor(np.int8(3)).dtype == tg.int8
    assert tg.tensor(np.True_).dtype == tg.bool


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ab,ab->ba", ((1, 4), (3, 4))), ("i,i->i", ((1,), (4,))), ("ij,jk->ik", ((2, 1), (3, 4)))],
)
def test_einsum_broadcasts_extents_of_one(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape) for shape in shapes]
    tensors = [tg.tensor(g, requires_grad=True) for g in given]
    out = tg.einsum(equation, *tensors)
    np.testing.assert_allclose(out.numpy(), np.einsum(equation, *given))
    for g, x in zip(tg.autograd.grad(out.sum(), tensors), tensors, strict=True):
        assert g.shape == x.shape


def test_diff_joins_before_and_after() -> None:
    x = np.array([[1.0, 4.0, 9.0], [2.0, 3.0, 5.0]])
    before, after = np.zeros((2, 1)), np.full((2, 2), 7.0)
    for options in ({}, {"prepend": before}, {"append": after},
                    {"prepend": before, "append": after, "n": 2}):  # fmt: skip
        given = {k: tg.tensor(v) if k != "n" else v for k, v in options.items()}
        np.testing.assert_array_equal(tg.diff(tg.tensor(x), **given).numpy(), np.diff(x, **options))


def test_isin_inverts() -> None:
    found = tg.isin(tg.tensor([1, 2, 3]), tg.tensor([2, 5]), invert=True)
    assert found.tolist() == [True, False, True]


def test_stages_are_named_with_the_line() -> None:
    with pytest.raises(errors.InvalidValue, match=HERE):
        tg.ones(3).generated_code("nothing")


@pytest.mark.parametrize("backend", ["native", "python"])
def test_zero_to_a_complex_power(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    power = tg.tensor([1 + 1j, 0.5 - 2j, 2 + 0j], dtype=tg.complex128)
    assert tg.pow(tg.zeros(3, dtype=tg.complex128), power).tolist() == [0j, 0j, 0j]


def test_layouts_of_torch_are_named() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.InvalidType, match=re.escape("sparse_coo")):
        tg.from_torch(torch.ones(3).to_sparse())


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "float16", "float64"])
@pytest.mark.parametrize("exponent", [1, 2, 2.0, 0.5, 3])
def test_powers_promote_as_products_do(dtype: str, exponent: float) -> None:
    x = tg.ones(2, dtype=getattr(tg, dtype))
    raised = x**exponent
    assert raised.dtype == tg.result_type(x.dtype, exponent)
    assert raised.tolist() == [1, 1]


def test_a_single_truth_value_is_no_index() -> None:
    with pytest.raises(errors.InvalidType, match=f"single truth value.*{HERE}"):
        tg.tensor(1.0)[tg.tensor(True)]


def test_a_leaf_is_written_through_a_detached_tensor() -> None:
    w = tg.tensor([2.0, 3.0], requires_grad=True)
    g = tg.autograd.grad((w * w).sum(), w)
    w.detach().sub_(0.5 * g)
    assert w.tolist() == [0.0, 0.0]
    assert w.is_leaf
    assert tg.autograd.grad((w * 4.0).sum(), w).tolist() == [4.0, 4.0]


def test_a_computed_tensor_is_not_changed_behind_its_derivatives() -> None:
    y = tg.ones(3, requires_grad=True) * 2.0
    with pytest.raises(errors.InvalidValue, match=f"detached.*{HERE}"):
        y.detach().mul_(2.0)


def test_what_is_expanded_and_shown_once_may_be_written() -> None:
    x = tg.zeros(3)
    tg.broadcast_to(x, (2, 3))[:1].add_(1.0)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_copies_and_pickles() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tg.bfloat16, requires_grad=True)
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.is_leaf
        assert made.requires_grad
        assert made.dtype is tg.bfloat16
        assert made.tolist() == x.tolist()
    y = (x * 2.0).T
    assert pickle.loads(pickle.dumps(y)).tolist() == y.tolist()
    assert copy.deepcopy(tg.float16) is tg.float16
    z = tg.zeros(3)
    alias, apart = copy.copy(z), copy.deepcopy(z)
    z.add_(1.0)
    assert alias.tolist() == [1.0, 1.0, 1.0]
    assert apart.tolist() == [0.0, 0.0, 0.0]


def test_single_numbers_are_formatted() -> None:
    assert f"{tg.tensor(1.23456):.2f}" == "1.23"
    assert f"{tg.tensor([1, 2])}" == str(tg.tensor([1, 2]))
