"""Values of native tensors on a GPU, or interpreted with TRITON_INTERPRET=1; no torch."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tiga as tg
from tiga.backends.triton.dense.executable import compile_dense
from tiga.backends.triton.dense.values import GPU
from tiga.frontends.tensor.build import apply, result
from tiga.frontends.tensor.gpu_arrays import room, to_gpu, to_host
from tiga.ops.base import REGISTRY, Pointwise
from tiga.ops.leaf import Input
from tiga.ops.pointwise import Cast
from tiga.ops.tensor_index import AddAlong, IndexAdd
from tiga.passes.tensor_fusable import is_pointwise
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import (
    COMPLEX,
    DTYPES,
    GLOBAL,
    DType,
    Type,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ALL = (*DTYPES.values(), *COMPLEX)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-30, 7.25)
EPS = {float16: 1e-3, bfloat16: 8e-3, float32: 1.2e-7, complex64: 1.2e-7}
ULPS = 8
BITS = [name for name in REGISTRY if name.startswith("bitwise")]
LOGIC = [name for name in REGISTRY if name.startswith("logical")]
UNLIKE = {
    "f": (*BITS, *LOGIC), "c": LOGIC, "i": LOGIC, "u": LOGIC,
    "b": ("neg", "sub", "mul", "add", "abs", "sign", "div", "rem", "floor_divide", "remainder",
          *(n for n in BITS if "shift" in n or "invert" in n)),
}  # fmt: skip
"""Ops that no frontend applies to a kind of dtypes."""


def numbers(dtype: DType, seed: int, domain: tuple[float, float] = (-3.0, 3.0)) -> np.ndarray:
    """48 numbers of a domain, and for floats the special ones."""
    rng = np.random.default_rng(seed)
    if dtype == bool_:
        return rng.integers(0, 2, 60).astype(bool)
    if dtype.kind in "iu":
        low = 0 if dtype == uint8 else -9
        return rng.integers(low, 10, 60).astype(dtype.numpy)
    plain = rng.uniform(*domain, 48)
    if dtype.is_complex:
        return (rng.uniform(-3, 3, 60) + 1j * rng.uniform(-3, 3, 60)).astype(dtype.numpy)
    return np.concatenate([plain, rng.permutation(SPECIAL)]).astype(dtype.numpy)


def close(
    got: np.ndarray, want: np.ndarray, dtype: DType, context: str, ulps: float = ULPS
) -> None:
    assert got.shape == want.shape, context
    if dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=context)
        return
    limit = ulps * EPS.get(dtype, 2.3e-16)
    kind = np.complex128 if dtype.is_complex else np.float64
    np.testing.assert_allclose(
        got.astype(kind), want.astype(kind), rtol=limit, atol=limit, err_msg=context
    )


def reference(node: Node, arrays: dict[Node, np.ndarray]) -> np.ndarray:
    wide = [
        arrays[c].astype(c.type.dtype.compute.numpy)[None] if c.type.dtype.is_float
        else arrays[c][None]
        for c in node.inputs
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.asarray(node.op.reference(*wide)[0]).astype(node.type.dtype.numpy)


def sampled_ops(dtype: DType) -> list[tuple[Node, dict[Node, np.ndarray]]]:
    """Every pointwise op of the registry that takes this dtype and that kernels compute."""
    found = []
    for name, kind in sorted(REGISTRY.items()):
        if not issubclass(kind, Pointwise) or name in ("cast", "where", "random_bits"):
            continue
        arrays = [numbers(dtype, i + len(found), kind.domain) for i in range(kind.arity or 1)]
        inputs = [
            Input(f"x{name}{i}", Type(dtype, a.shape, GLOBAL))() for i, a in enumerate(arrays)
        ]
        try:
            node = kind()(*inputs)
        except (AssertionError, KeyError, TypeError):
            continue  # the op does not take this dtype
        if is_pointwise(node, GPU) and name not in UNLIKE.get(dtype.kind, ()):
            found.append((node, dict(zip(inputs, arrays, strict=True))))
    return found


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_pointwise_op(dtype: DType) -> None:
    cases = sampled_ops(dtype)
    assert len(cases) >= 4
    arrays = {x: a for _, given in cases for x, a in given.items()}
    program = Program(tuple(arrays), tuple(node for node, _ in cases))
    given = [to_gpu(a, 0) for a in arrays.values()]
    found = compile_dense(program).run(given, room(0))
    for (node, own), got in zip(cases, found, strict=True):
        close(to_host(got), reference(node, own), node.type.dtype, f"{node.op.name} of {dtype}")


@pytest.mark.parametrize("source", ALL, ids=str)
def test_every_cast(source: DType) -> None:
    array = numbers(source, 3, (0.0, 9.0))
    if source.is_float:
        plain = array.astype(np.float64)
        array = array[np.isfinite(plain) & ~(plain < 0)]
    x = Input("x", Type(source, array.shape, GLOBAL))()
    targets = [t for t in ALL if t != source and (not source.is_complex or t.is_complex)]
    casts = [Cast(t)(x) for t in targets]
    found = compile_dense(Program((x,), tuple(casts))).run([to_gpu(array, 0)], room(0))
    for node, got in zip(casts, found, strict=True):
        close(to_host(got), reference(node, {x: array}), node.type.dtype, f"to {node.op.to}")


@contextmanager
def by_numpy() -> Iterator[None]:
    """What is computed meanwhile, on the CPU, is numpy's."""
    os.environ["TIGA_TENSOR_BACKEND"] = "python"
    try:
        yield
    finally:
        del os.environ["TIGA_TENSOR_BACKEND"]


def on_both(make: Callable[..., tg.Tensor], *arrays: np.ndarray, ulps: float = ULPS) -> tg.Tensor:
    """What a function of tensors gives on the GPU, compared with the CPU's."""
    with by_numpy():
        want = make(*map(tg.tensor, arrays)).realize()
    got = make(*(tg.tensor(a, device="cuda") for a in arrays))
    assert got.device == "cuda"
    close(got.cpu().numpy(), want.numpy(), want.dtype, str(want._node.type), ulps)
    return got


REDUCTIONS = {
    "sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "var": tg.var, "prod": tg.prod,
    "logsumexp": tg.logsumexp, "argmax": tg.argmax, "argmin": tg.argmin,
}  # fmt: skip
SHAPES = [((7, 33), (1,)), ((7, 33), (0,)), ((4, 5, 6), (1,)), ((5, 16), None), ((3, 2, 8), (0, 2))]


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64, int32], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, dtype: DType) -> None:
    if dtype.kind == "i" and name in ("mean", "var", "logsumexp"):
        pytest.skip("of floats only")
    for shape, axes in SHAPES[: 2 if dtype in (float16, bfloat16) else None]:
        x = np.random.default_rng(1).uniform(0.5, 1.5, shape) * (5 if dtype == int32 else 1)
        axis = axes[0] if axes is not None and name in ("argmax", "argmin") else axes
        if name in ("argmax", "argmin") and axes is None:
            continue
        on_both(lambda t, axis=axis: REDUCTIONS[name](t, axis=axis), x.astype(dtype.numpy), ulps=40)


@pytest.mark.parametrize("dtype", [float32, int8, uint8, int64, bool_], ids=str)
def test_extrema_of_ties_and_nan(dtype: DType) -> None:
    x = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [5, 0, 5, 1]]).astype(dtype.numpy)
    if dtype == float32:
        x[1, 2] = x[1, 3] = np.nan
    for function in (tg.argmax, tg.argmin):
        on_both(lambda t, f=function: f(t, axis=1), x)
    if dtype != bool_:
        on_both(lambda t: tg.max(t, axis=0), x)
        on_both(lambda t: tg.min(t), x)
    on_both(lambda t: tg.any(t != 0, axis=1), x)
    on_both(lambda t: tg.all(t != 0), x)


LARGE = [(3, 9000), (2000, 70), (1, 40000), (40000, 1), (1100, 2048)]
if INTERPRETED:
    LARGE = [(2, 9000), (130, 70), (2500, 1)]


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_many_programs_add_in_order(shape: tuple[int, int]) -> None:
    """Rows longer than a tile, partial results of many programs, and the same bits twice."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for axis in (None, 0, 1):
        want = x.astype(np.float64).sum(axis)
        tensor = tg.tensor(x, device="cuda")
        got = tg.sum(tensor, axis=axis).cpu().numpy()
        scale = np.abs(x).astype(np.float64).sum(axis)
        assert (np.abs(got - want) <= 4e-7 * scale).all(), axis
        again = tg.sum(tensor, axis=axis).cpu().numpy()
        assert got.tobytes() == again.tobytes()
    on_both(lambda t: tg.softmax(t, axis=1), x)
    on_both(lambda t: tg.max(t * 2.0, axis=1), x)


@pytest.mark.parametrize("columns", [33, 9000])
def test_layer_norm_and_its_gradient(columns: int) -> None:
    """Row reductions, and sums over rows beside them, where rows fit a tile and where not."""
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((5, columns), (columns,), (columns,))]

    def gradients(*given: tg.Tensor) -> list[tg.Tensor]:
        x, w, b = (t.requires_grad_() for t in given)
        loss = (tg.layer_norm(x, (columns,), w, b) ** 2).sum()
        return list(tg.autograd.grad(loss, [x, w, b]))

    with by_numpy():
        want = [g.realize() for g in gradients(*map(tg.tensor, arrays))]
    got = gradients(*(tg.tensor(a, device="cuda") for a in arrays))
    for one, other in zip(got, want, strict=True):
        assert one.device == "cuda"
        np.testing.assert_allclose(one.cpu().numpy(), other.numpy(), rtol=2e-4, atol=2e-4)


def test_broadcasts_of_every_kind() -> None:
    rng = np.random.default_rng(3)

    def array(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    on_both(lambda x, v, c: (x * v + c).sum(axis=1), array(6, 40), array(40), array(6, 1))
    on_both(lambda a, b: a * b + b, array(4, 1, 5), array(1, 3, 5))
    on_both(lambda a, b: a - b, array(4, 3, 5), array(3, 1))
    on_both(lambda a, b: tg.where(a > b, a, b * 2.0), array(7), array(5, 7))
    on_both(lambda a: a + tg.full((), 2.0), array(3, 3))


def test_complex_numbers() -> None:
    rng = np.random.default_rng(4)
    x, y = ((rng.normal(size=(5, 16)) + 1j * rng.normal(size=(5, 16))).astype(np.complex64)
            for _ in range(2))  # fmt: skip
    on_both(lambda a, b: a * b + tg.conj(a) - b / (a + 1.0), x, y)
    on_both(lambda a, b: (a * b).sum(axis=1), x, y)
    on_both(lambda a, b: (a * b).sum(axis=0), x, y)
    on_both(lambda a, b: (a - b).sum(), x, y)
    on_both(lambda a, b: tg.matmul(a, b.T), x, y)
    on_both(lambda a: -a, x.astype(np.complex128))
    on_both(lambda a: tg.real(a) * tg.imag(a), x)


MOVES: dict[str, Callable[[tg.Tensor], tg.Tensor]] = {
    "transpose": lambda x: x.T + 0.0, "flip": lambda x: tg.flip(x, axis=1),
    "slice": lambda x: x[1:, ::3] * 1.0, "roll": lambda x: tg.roll(x, 2, axis=1),
    "concat": lambda x: tg.concat([x, x * 2.0], axis=1), "stack": lambda x: tg.stack([x, x]),
    "pad": lambda x: tg.pad(x, [(1, 0), (2, 3)]), "reshape": lambda x: tg.reshape(x.T, (-1,)),
    "take": lambda x: tg.take(x, tg.tensor([2, 0, -1], device=x.device), axis=0),
    "cumsum": lambda x: tg.cumulative_sum(x, axis=0), "scan": lambda x: x.cumsum(1, reverse=True),
    "expand": lambda x: tg.broadcast_to(x, (2, *x.shape)) * 1.0,
    "tile": lambda x: tg.tile(x, (2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    on_both(MOVES[name], np.random.default_rng(5).normal(size=(4, 10)).astype(np.float32))


@pytest.mark.parametrize("dtype", [float16, float32, int32, uint8, bool_], ids=str)
def test_sorting(dtype: DType) -> None:
    x = np.random.default_rng(10).integers(0, 9, (4, 11)).astype(dtype.numpy)
    if dtype == float32:
        x[0, :6] = [np.nan, -0.0, 0.0, -np.inf, np.inf, np.nan]
        x[1] -= 4
    for descending in (False, True):
        on_both(lambda t, d=descending: tg.argsort(t, axis=1, descending=d), x)
        on_both(lambda t, d=descending: tg.argsort(t, axis=0, descending=d), x)
    on_both(lambda t: tg.sort(t, axis=1), x[2:])
    on_both(lambda t: t.topk(3)[0], x[2:])


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64, int32], ids=str)
def test_products(dtype: DType) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-4, 5, s).astype(dtype.numpy) for s in ((2, 37, 19), (2, 19, 70)))
    on_both(tg.matmul, a, b)
    on_both(lambda x, y: tg.einsum("bij,bjk->ki", x, y), a, b)


@pytest.mark.parametrize("dtype", [float16, float32, int64, complex64], ids=str)
def test_sums_at_positions(dtype: DType) -> None:
    rng = np.random.default_rng(8)
    values = rng.integers(-4, 5, (3, 7, 5)).astype(dtype.numpy)
    index = np.array([2, 0, 2, 2, 5, 0, 1])
    on_both(lambda v, i: index_add(v, i, 1, 6), values, index)
    along = rng.integers(0, 6, values.shape)
    on_both(lambda v, i: add_along(v, i, 1, 6), values, along)


def index_add(values: tg.Tensor, index: tg.Tensor, axis: int, extent: int) -> tg.Tensor:
    return result(apply(IndexAdd(axis, extent), values._node, index._node), values)


def add_along(values: tg.Tensor, index: tg.Tensor, axis: int, extent: int) -> tg.Tensor:
    return result(apply(AddAlong(axis, extent), values._node, index._node), values)


INVERSES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
            "atan": "arctan", "atanh": "arctanh"}  # fmt: skip
COMPLEX_FUNCTIONS = ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "abs", "angle", "sin",
                     "cos", "tan", "sinh", "cosh", "tanh", "sign", *INVERSES)  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_functions_of_complex_numbers(name: str) -> None:
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(4, 50)) + 1j * rng.normal(size=(4, 50))).astype(np.complex64)
    x = tg.tensor(z, device="cuda", requires_grad=True)
    found = getattr(tg, name)(x)
    exact = z.astype(np.complex128)
    want = np.sign(exact) if name == "sign" else getattr(np, INVERSES.get(name, name))(exact)
    np.testing.assert_allclose(found.cpu().numpy(), want, rtol=2e-6, atol=2e-6)
    assert found.execution is not None
    assert found.execution["library_calls"] == ()
    grad = tg.autograd.grad(tg.real(found).sum(), x)
    host = tg.tensor(z, requires_grad=True)
    expected = tg.autograd.grad(tg.real(getattr(tg, name)(host)).sum(), host).numpy()
    np.testing.assert_allclose(grad.cpu().numpy(), expected, rtol=2e-4, atol=1e-5)
