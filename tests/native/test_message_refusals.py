"""What calls on native tensors may not do: refused with the line, as on torch tensors."""

import numpy as np
import pytest

import tiga as tg

RNG = np.random.default_rng(5)
GRAPH = tg.Graph.from_coo(*RNG.integers(0, 6, (2, 20)), num_src=6, num_dst=6)
X = RNG.uniform(0.5, 2, (6, 3))

UNFIT = {
    "std of bools": (tg.std(), lambda x: x > 0, "Std takes .*floating-point.* got bool"),
    "logsumexp of integers": (tg.logsumexp(), lambda x: tg.astype(x, tg.int64), "got int64"),
    "max of bools": (tg.max(), lambda x: x > 0, "Max takes .* got bool"),
    "mask of floats": (tg.sum(), lambda x: tg.mask(x, x), "`keep` must hold bools"),
    "one of two": (tg.softmax(), lambda x: x, "Softmax takes 2"),
    "none": (tg.sum(), lambda x: (), "returned no message"),
    "no reducer": (tg.sum, lambda x: x, r"`reducer = tg.sum\(\)`"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_messages_that_their_reducer_does_not_take(name: str) -> None:
    reducer, message, reason = UNFIT[name]

    class Sent(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return message(src.x)

    kernel = Sent()
    kernel.reducer = reducer
    with pytest.raises(tg.errors.InvalidType, match=reason) as caught:
        kernel(graph=GRAPH, src={"x": tg.tensor(X)})
    assert "test_message_refusals.py:" in str(caught.value)


EXTENTS = {
    "shape": lambda x: x * x.shape[0],
    "len": lambda x: x * len(x),
    "size": lambda x: x / x.size,
}


@pytest.mark.parametrize("name", EXTENTS)
def test_the_number_of_edges_is_no_number(name: str) -> None:
    class OnEdges(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return EXTENTS[name](src.x)

    class OnNodes(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x

        def node(self, dst, aggregate):
            return EXTENTS[name](aggregate)

    for kernel in (OnEdges(), OnNodes()):
        with pytest.raises(tg.errors.InvalidValue, match="how many edges"):
            kernel(graph=GRAPH, src={"x": tg.tensor(X)})


CALLS = {
    "a parameter that nobody takes": ({"beta": 2.0}, "takes a parameter `beta`"),
    "a name that is near": ({"alpah": 2.0}, r"Did you mean `alpha`\?"),
    "a name of another library": ({"alpha": 1.0, "edata": {}}, r"Did you mean `edge`\?"),
    "no parameter": ({}, r"test_message_refusals\.py:\d+: Scaled\.edge takes `alpha`"),
}


@pytest.mark.parametrize("name", CALLS)
def test_parameters_that_no_function_takes(name: str) -> None:
    class Scaled(tg.MessagePassing):
        def edge(self, src, dst, edge, alpha):
            return alpha * src.x

    params, reason = CALLS[name]
    given = {"graph": GRAPH, "src": {"x": tg.tensor(X)}}
    with pytest.raises(tg.errors.InvalidType, match=reason):
        Scaled()(**given, **params)
    assert Scaled()(**given, alpha=0.0).numpy().sum() == 0
