"""What a computed tensor keeps alive: its own value, and operands only for derivatives."""

import gc
import resource
from weakref import ref

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidValue
from tiga.runtime.pool import POOL

LARGE = 1 << 16


def operand(requires_grad: bool = False) -> tuple[tg.Tensor, "ref[np.ndarray]"]:
    array = np.ones(LARGE, np.float32)
    return tg.from_numpy(array).requires_grad_(requires_grad), ref(array)


@pytest.mark.parametrize("backend", ["native", "python"])
def test_operands_are_freed_once_the_value_is_there(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x, alive = operand()
    y = tg.exp(x) + 1.0
    assert alive() is not None
    y.realize()
    del x
    gc.collect()
    assert alive() is None
    np.testing.assert_allclose(y.numpy(), np.e + 1.0, rtol=1e-6)


def test_operands_stay_where_derivatives_need_them() -> None:
    x, alive = operand(requires_grad=True)
    y = (x * x).realize()
    (dx,) = tg.autograd.grad(y.sum(), (x,))
    del x
    gc.collect()
    assert alive() is not None
    assert dx.numpy()[0] == 2.0
    del y, dx
    gc.collect()
    assert alive() is None


def test_an_expression_is_shown_without_its_operands() -> None:
    x, _ = operand()
    y = (tg.exp(x) * 2.0).realize()
    before = y.mlir(verify=True)
    line = y.expression().split("# ")[-1]
    del x
    gc.collect()
    assert y.mlir(verify=True) == before
    assert y.expression().split("# ")[-1] == line
    assert "test_lifetimes.py" in line
    assert "define" in y.generated_code("llvm")


def test_prepare_needs_the_operands() -> None:
    x, _ = operand()
    y = (x + 1.0).realize()
    run = y.prepare()
    x.fill_(4.0)
    assert run().numpy()[0] == 5.0
    z = (x + 2.0).realize()
    del x, run, y
    gc.collect()
    with pytest.raises(InvalidValue, match=r"is gone .*keep it"):
        z.prepare()


@pytest.mark.parametrize("size", [8, LARGE])
def test_a_long_loop_keeps_no_history(size: int) -> None:
    x, step = tg.zeros(size), tg.ones(size)
    rounds = 100_000 if size == 8 else 4_000
    for i in range(rounds):
        x = x + step
        if i == rounds // 10:
            gc.collect()
            objects = len(gc.get_objects())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert x.numpy()[0] == rounds
    gc.collect()
    assert len(gc.get_objects()) < objects + 2_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown < 32 * 1024, f"{grown} KiB more after nine tenths of the loop"


def test_computed_one_by_one_memory_stays_flat() -> None:
    x, step = tg.zeros(1 << 20), tg.ones(1 << 20)
    held = []
    for _ in range(50):
        x = (x + step).realize()
        held.append(sum(block.nbytes for block in POOL._blocks))
    assert x.numpy()[-1] == 50.0
    # The value, the one before it, and blocks that wait for use.
    assert max(held[5:]) <= held[4]


class Sum(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.x * edge.w


@pytest.mark.parametrize("requires_grad", [False, True])
def test_calls_over_graphs_keep_nothing(requires_grad: bool) -> None:
    def call() -> tuple[tg.Tensor, list["ref[object]"]]:
        ends = np.arange(5000) % 50
        graph = tg.Graph.from_coo(ends, ends[::-1].copy(), num_src=50, num_dst=50)
        arrays = [np.ones((50, 200), np.float32), np.ones((5000, 1), np.float32)]
        x, w = (tg.from_numpy(a).requires_grad_(requires_grad) for a in arrays)
        out = Sum()(graph=graph, src={"x": x}, edge={"w": w}).realize()
        if requires_grad:
            dx, dw = tg.autograd.grad(out.sum(), (x, w))
            assert dx.numpy().sum() == 5000 * 200
            assert dw.numpy().sum() == 5000 * 200
        return out, [ref(graph), *map(ref, arrays)]

    out, alive = call()
    gc.collect()
    assert out.numpy().sum() == 5000 * 200
    if not requires_grad:
        assert [r() is None for r in alive[1:]] == [True, True]
    del out
    gc.collect()
    assert [r() is None for r in alive] == [True, True, True]


def test_a_refusal_keeps_no_operand_alive() -> None:
    gc.disable()
    try:
        with tg.execution(memory={"host": "1MiB", "nvme": "4KiB"}):
            x = tg.ones(2**17).realize()
            kept = ref(x._array)
            with pytest.raises(MemoryError):
                tg.concat([x] * 8).realize()
            del x
            assert kept() is None
    finally:
        gc.enable()
