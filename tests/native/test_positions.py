"""Reading at positions, scans, products and positions of extrema through the public functions:
fused, deterministic, refused where they must be, and their derivatives."""

import numpy as np
import pytest

import tiga as tg
from tiga import errors


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")


def kernels(x: tg.Tensor) -> int:
    x.realize()
    assert x.execution["backend"] == "cpu-llvm"
    assert x.execution["library_calls"] == ()
    return x.execution["kernels"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_what_surrounds_them_joins_their_kernel() -> None:
    x, v = tg.tensor(normal(50, 40)), tg.tensor(normal(40))
    index = tg.tensor(np.random.default_rng(1).integers(-50, 50, 70))
    assert kernels(tg.exp(tg.take(x, index, axis=0)) * v + 1.0) == 1
    assert kernels((tg.take(x, index, axis=0) * v).sum(1)) == 1
    assert kernels(tg.take(v, tg.tensor([[0, 3], [-1, 5]]), axis=0) * 2.0) == 1
    assert kernels(tg.softmax(tg.cumulative_sum(x * v, axis=1), axis=1)) == 1
    assert kernels(tg.prod(x * v, axis=1)) == 1
    assert kernels(tg.argmax(x * v, axis=1)) == 1
    assert kernels(tg.cumulative_prod(x * v, axis=1) - x) == 1


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(400, 300).astype(np.float32)
    index = np.random.default_rng(2).integers(0, 400, 9000)
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        a = tg.tensor(x, requires_grad=True)
        picked = tg.take(a, tg.tensor(index), axis=0) * 0.7
        results = [
            picked, tg.cumulative_sum(a, axis=1), tg.cumulative_sum(a, axis=0, reverse=True),
            tg.prod(a, axis=1), tg.prod(a), tg.argmax(a, axis=0), tg.argmin(a),
            tg.cumulative_prod(a * 1.1, axis=1), *tg.autograd.grad((picked * picked).sum(), [a]),
            tg.scatter_add(picked, tg.tensor(index), 400),
            tg.scatter_add(picked[:, :3], tg.tensor(index), 400),
        ]  # fmt: skip
        found.append(b"".join(r.numpy().tobytes() for r in results))
    assert len(set(found)) == 1


def test_sums_at_positions_add_in_their_order() -> None:
    """1e8 + 1 - 1e8 + 1 in float32: left to right it is 1, whatever the threads."""
    values = tg.tensor(np.tile(np.array([1e8, 1.0, -1e8, 1.0], np.float32), 10_000))
    index = tg.tensor(np.repeat(np.arange(10_000), 4))
    got = tg.scatter_add(values, index, 10_000)
    assert (got.numpy() == 1.0).all()
    assert kernels(got) == 0


def test_the_code_of_sums_at_positions_can_be_read() -> None:
    total = tg.scatter_add(tg.tensor(normal(3, 40)), tg.tensor([0, 2, 2]), 4)
    assert "scf.for" in total.generated_code("loops")
    assert "define" in total.generated_code("llvm")


def test_running_sums_keep_their_accuracy() -> None:
    ones = tg.ones(3_000_000)
    assert tg.cumulative_sum(ones)[-1].item() == 3_000_000
    tenth = tg.full((1, 1_000_000), 0.1)
    exact = np.float64(np.float32(0.1)) * 1_000_000
    assert abs(tg.cumulative_sum(tenth, axis=1)[0, -1].item() - exact) < 0.01


def test_strict_sums_beside_a_scan_from_the_end_add_in_order() -> None:
    x = normal(5, 300, seed=4).astype(np.float32)
    a = tg.tensor(x)
    back = tg.cumulative_sum(a, axis=1, reverse=True)
    exact = np.cumsum(x[:, ::-1], axis=1, dtype=np.float64)[:, ::-1].astype(np.float32)
    for made, columns in ((back.sum(1), exact.T), (a.sum(1) + 0.0 * back[:, 0], x.T)):
        want = np.zeros(5, np.float32)
        for column in columns:
            want = want + column
        np.testing.assert_array_equal(made.realize(strict=True).numpy(), want)


@pytest.mark.parametrize("axis", [0, 1])
def test_derivatives_of_picks(axis: int) -> None:
    x = tg.tensor(normal(6, 5), requires_grad=True)
    index = [0, -1, 2, 2, 0]
    weights = normal(*((5, 5) if axis == 0 else (6, 5)), seed=3)
    (slope,) = tg.autograd.grad(
        (tg.take(x, tg.tensor(index), axis=axis) ** 2 * tg.tensor(weights)).sum(), [x]
    )
    want = np.zeros((6, 5))
    for place, at in enumerate(index):
        if axis == 0:
            want[at] += weights[place]
        else:
            want[:, at] += weights[:, place]
    np.testing.assert_allclose(slope.numpy(), 2 * x.numpy() * want)
    lines = tg.tensor(np.array([[0, 5, 5, 1, -1]] * 2 if axis == 0 else [[0, 4, 4]] * 6))
    along = tg.take_along_axis(x, lines, axis=axis)
    (slope,) = tg.autograd.grad((along * along).sum(), [x])
    counts = np.zeros((6, 5))
    np.add.at(counts, tuple(_grid(lines.numpy(), axis)), 1.0)
    np.testing.assert_allclose(slope.numpy(), 2 * x.numpy() * counts)


def _grid(index: np.ndarray, axis: int) -> list[np.ndarray]:
    grid = list(np.indices(index.shape))
    grid[axis] = index
    return grid


def test_derivatives_of_products_with_zeros() -> None:
    rows = [[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [1.0, 2.0, 4.0]]
    x = tg.tensor(rows, requires_grad=True)
    slope = tg.autograd.grad(tg.prod(x, axis=1).sum(), x)
    assert slope.tolist() == [[0, 6, 0], [0, 0, 0], [8, 4, 2]]
    curved = tg.autograd.hessian(lambda v: tg.prod(v), tg.tensor([2.0, 0.0, 0.0, 5.0]))
    want = np.zeros((4, 4))
    want[1, 2] = want[2, 1] = 10
    np.testing.assert_allclose(curved.numpy(), want)
    third = tg.autograd.jacobian(
        lambda v: tg.autograd.hessian(lambda u: tg.prod(u), v)[1, 2], tg.tensor([2.0, 0, 0, 5.0])
    )
    np.testing.assert_allclose(third.numpy(), [5, 0, 0, 2])


def test_derivatives_of_running_products_with_zeros() -> None:
    """d/dx_j of the product up to i, by hand."""
    x = np.array([1.5, 0.0, 2.0, -1.0, 0.0, 3.0])
    for reverse in (False, True):
        given = x[::-1].copy() if reverse else x
        got = tg.autograd.jacobian(tg.cumulative_prod, tg.tensor(given)).numpy()
        want = np.zeros((6, 6))
        for i in range(6):
            for j in range(i + 1):
                want[i, j] = np.prod(np.delete(given[: i + 1], j))
        np.testing.assert_allclose(got, want)
    ones = tg.ones(6, dtype=tg.float64)
    _, moved = tg.autograd.jvp(tg.cumulative_prod, (tg.tensor(x),), (ones,))
    rows = tg.autograd.jacobian(tg.cumulative_prod, tg.tensor(x))
    np.testing.assert_allclose(moved.numpy(), rows.numpy().sum(1))


def test_positions_that_do_not_exist() -> None:
    x, index = tg.tensor(normal(5, 40)), tg.tensor([0, 1, 4])
    later = index * 3  # known only when it is computed
    for bad, position in ((later, 12), (-later - 1, -13)):
        with pytest.raises(errors.InvalidIndex, match=rf"{position} .*extent 5 .*test_positions"):
            tg.take(x, bad, axis=0).realize()
        with pytest.raises(errors.InvalidIndex, match=rf"{position} .*extent 5 .*test_positions"):
            tg.scatter_add(x[:3], bad, 5).realize()
    with pytest.raises(errors.InvalidIndex, match="12 is out of range for extent 5"):
        tg.take(x, later.realize(), axis=0)
    with pytest.raises(errors.InvalidIndex, match="index"):
        tg.take(tg.zeros((0, 3)), tg.tensor([0]), axis=0).realize()
    assert tg.take(x, later // 3, axis=0).shape == (3, 40)


def test_numpy_refuses_the_same_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "python")
    x, later = tg.tensor(normal(5, 4)), tg.tensor([0, 3]) * 2
    for bad in (later, -later):
        with pytest.raises(errors.InvalidIndex, match="out of bounds"):
            tg.take(x, bad, axis=0).realize()
    assert tg.take(x, tg.tensor([-5, 4]) * 1, axis=0).tolist() == x.numpy()[[0, 4]].tolist()


def test_prepared_programs_check_positions_at_every_run() -> None:
    x, index = tg.tensor(normal(5)), tg.tensor([0, 1, 4])
    run = (tg.take(x, index, axis=0) * 2.0).prepare()
    np.testing.assert_allclose(run().numpy(), x.numpy()[[0, 1, 4]] * 2)
    index.copy_(tg.tensor([0, 1, 5]))
    with pytest.raises(errors.InvalidIndex, match="5 is out of range"):
        run()
    index.copy_(tg.tensor([-1, 1, 3]))
    np.testing.assert_allclose(run().numpy(), x.numpy()[[-1, 1, 3]] * 2)


def test_per_example_picks_count_from_the_end() -> None:
    x, index = tg.tensor(normal(4, 6)), tg.tensor([[0, -1], [2, 2], [-6, 5], [1, -2]])
    got = tg.autograd.vmap(lambda row, at: tg.take(row, at, axis=0))(x, index)
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x.numpy(), index.numpy(), 1))


def test_bytes_are_unsigned() -> None:
    a, b = np.array([0, 7, 128, 200, 255], np.uint8), np.array([1, 3, 129, 100, 254], np.uint8)
    x, y = tg.tensor(np.tile(a, 9)), tg.tensor(np.tile(b, 9))
    for name in ("maximum", "less", "floor_divide", "remainder", "add", "multiply"):
        got = getattr(tg, name)(x, y)
        assert kernels(got) == 1
        want = getattr(np, name)(np.tile(a, 9), np.tile(b, 9))
        np.testing.assert_array_equal(got.numpy(), want, err_msg=name)
    for name, rule in (("max", np.max), ("min", np.min), ("argmax", np.argmax)):
        got = getattr(tg, name)(x)
        assert got.item() == rule(np.tile(a, 9))
    np.testing.assert_allclose((x.astype(tg.float32) / 2.0).numpy(), np.tile(a, 9) / 2)


def test_positions_along_an_axis_that_exist_only_in_the_whole() -> None:
    """Computed when they are looked at: 5 of 4 columns would be a place of the next row."""
    x = tg.tensor(np.arange(12.0).reshape(3, 4))
    zero, wrong = tg.tensor([0, 0]) * 1, tg.tensor([1, 5]) * 1
    with pytest.raises(errors.InvalidIndex):
        x[zero, wrong].tolist()
    with pytest.raises(errors.InvalidIndex):
        x[zero + 1, wrong - 6].tolist()


@pytest.mark.parametrize("shape", [(40_000,), (7, 3), (3, 300)], ids=str)
def test_sums_at_few_positions(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few targets: ranges of the values are added apart, by extents alone; strictly, in order."""
    rng = np.random.default_rng(5)
    count = max(shape[0], 40_000)
    values = rng.standard_normal((count, *shape[1:])).astype(np.float32)
    targets = 5 if len(shape) == 1 else shape[0]
    index = rng.integers(-targets, targets, count)
    exact, in_order = np.zeros((targets, *shape[1:])), np.zeros((targets, *shape[1:]), np.float32)
    np.add.at(exact, index, values)
    np.add.at(in_order, index, values)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        found.append(tg.scatter_add(tg.tensor(values), tg.tensor(index), targets).numpy())
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], exact, atol=1e-2)
    strict = tg.scatter_add(tg.tensor(values), tg.tensor(index), targets).realize(strict=True)
    np.testing.assert_array_equal(strict.numpy(), in_order)
    index[-1] = targets
    with pytest.raises(errors.InvalidIndex, match=f"{targets} is out of range"):
        tg.scatter_add(tg.tensor(values), tg.tensor(index), targets).realize()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize("shape", [(32_768,), (40_001,), (300, 500)], ids=str)
def test_the_position_of_the_extremum_of_all(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.abs(normal(*shape)) * 30).astype(dtype)
    x = tg.from_numpy(array)
    for change in (0, np.inf, np.nan):
        if array.dtype.kind == "f":
            array.reshape(-1)[[20_000, 30_000]] = change
        assert tg.argmax(x).item() == array.argmax()
        assert tg.argmin(x).item() == array.argmin()
    assert kernels(tg.argmax(x)) == 0
    assert kernels(tg.argmax(x * tg.ones(1, dtype=x.dtype))) > 0
    again = tg.argmax(x).prepare()
    array.reshape(-1)[-1] = 120
    assert again().item() == array.argmax()
