"""What `kernel.reference` tells of native calls is what they compute."""

from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

RNG = np.random.default_rng(5)
SRC, DST = RNG.integers(0, 6, 20), RNG.integers(0, 5, 20)
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=6, num_dst=5)


class Attention(tg.MessagePassing):
    """Edge fields in the user's order, an argument, a shared product and several results."""

    reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any, w: Any) -> Any:
        return self.reducer((src.x * dst.y).sum(-1) * edge.e, src.x @ (w @ w))

    def node(self, dst: Any, aggregate: Any) -> Any:
        return {"both": (aggregate, aggregate + dst.y), "twice": aggregate * 2.0}


class Normalised(tg.MessagePassing):
    """A value per edge, in the user's order."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x[..., 0] * edge.e

    reducer = tg.edge_softmax()


class Best(tg.MessagePassing):
    reducer = tg.argmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.e[..., None]


class Sorted(tg.MessagePassing):
    """What no walk holds."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.sort(src.x)


def fields(dtype: Any = tg.float64, grad: bool = False) -> dict[str, Any]:
    """The fields of a call; the same at every call."""
    rng = np.random.default_rng(1)
    x, y, e = (tg.tensor(rng.standard_normal(s), dtype=dtype) for s in ((6, 3), (5, 3), 20))
    x.requires_grad_(grad)
    return {"graph": GRAPH, "src": {"x": x}, "dst": {"y": y}, "edge": {"e": e}}


def test_results_in_a_tree_by_the_oracle() -> None:
    kernel, given = Attention(), fields(grad=True)
    given["w"] = tg.eye(3, dtype=tg.float64) * 0.5
    got, want = kernel(**given), kernel.reference(**given)
    assert got.keys() == want.keys()
    pairs = [*zip(got["both"], want["both"], strict=True), (got["twice"], want["twice"])]
    for one, other in pairs:
        assert not other.requires_grad
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    scores = (np.take(given["src"]["x"].numpy(), SRC, 0) * given["dst"]["y"].numpy()[DST]).sum(1)
    weights = np.exp(scores * given["edge"]["e"].numpy())
    rows = np.zeros((5, 3))
    np.add.at(rows, DST, weights[:, None] * given["src"]["x"].numpy()[SRC] / 4)
    rows /= np.bincount(DST, weights, 5)[:, None]
    np.testing.assert_allclose(want["twice"].numpy(), 2 * rows, rtol=1e-12)


@pytest.mark.parametrize("kernel", [Normalised(), Best()], ids=["per edge", "positions"])
def test_values_of_edges_are_in_the_users_order(kernel: tg.MessagePassing) -> None:
    given = fields()
    np.testing.assert_allclose(
        kernel(**given).numpy(), kernel.reference(**given).numpy(), rtol=1e-12
    )


def test_16_bit_floats_round_where_kernels_round() -> None:
    given = fields(tg.bfloat16)
    got, want = Best()(**given), Best().reference(**given)
    assert got.dtype == want.dtype == tg.int64
    assert got.tolist() == want.tolist()


def test_what_goes_through_memory_is_no_program() -> None:
    with pytest.raises(errors.InvalidType, match=r"one program.*test_reference\.py:\d+.*sort"):
        Sorted().reference(**fields())
