"""Calls and classes that cannot work: errors say what was expected, what came, what to do."""

import pytest
import torch

import tiga as tg
from tiga import errors

GRAPH = tg.Graph.from_coo([0, 1, 2], [1, 1, 0], num_src=3, num_dst=3)
X = torch.arange(12.0).reshape(3, 4)
THIS = r"test_bad_input\.py:\d+"


def kernel(**body):
    return type("Kernel", (tg.MessagePassing,), body)()


class Scaled(tg.MessagePassing):
    def edge(self, src, dst, edge, scale):
        return src.x * scale


def test_a_call_without_names():
    with pytest.raises(errors.InvalidType, match=r"takes names only, `kernel\(graph=.*got 2"):
        Scaled()(GRAPH, {"x": X})


def test_a_call_without_a_graph():
    with pytest.raises(errors.InvalidType, match=r"got NoneType.*tg\.Graph\.from_edge_index"):
        Scaled()(src={"x": X}, scale=2.0)


def test_a_missing_parameter():
    with pytest.raises(errors.InvalidType, match=THIS + r": Scaled\.edge takes `scale`.*scale=\."):
        Scaled()(graph=GRAPH, src={"x": X})


def test_a_parameter_that_nobody_takes():
    with pytest.raises(
        errors.InvalidType, match=r"parameter `offset`.*must be a parameter of `edge` or `node`"
    ):
        Scaled()(graph=GRAPH, src={"x": X}, scale=1.0, offset=2.0)


@pytest.mark.parametrize(
    ("body", "declaration"),
    [
        ({"edge": lambda self, src: src.x}, r"def edge\(self, src, dst, edge\)"),
        (
            {"edge": lambda self, src, dst, edge: src.x, "node": lambda self, aggregate: aggregate},
            r"def node\(self, dst, aggregate\)",
        ),
    ],
)
def test_functions_with_other_arguments(body, declaration):
    with pytest.raises(errors.InvalidType, match=THIS + f".*Expected `{declaration}`"):
        kernel(**body)(graph=GRAPH, src={"x": X})


def test_bases_in_the_wrong_order():
    with pytest.raises(errors.InvalidType, match=r"class Layer\(tg\.MessagePassing, Module\)"):
        type("Layer", (torch.nn.Module, tg.MessagePassing), {})


@pytest.mark.parametrize("shape", [(2,), (4, 1)])
def test_scores_that_do_not_fit_their_values(shape):
    class Attend(tg.MessagePassing):
        reducer = tg.softmax()

        def edge(self, src, dst, edge):
            return self.reducer(edge.score, src.x)

    score = torch.zeros(3, *shape)
    with pytest.raises(errors.InvalidValue, match=THIS + r": scores.*\(4,\).*per head"):
        Attend()(graph=GRAPH, src={"x": X}, edge={"score": score})


def test_strict_says_how_to_go_on():
    run = kernel(edge=lambda self, src, dst, edge: torch.special.i0(src.x), strict=True)
    with pytest.raises(errors.Unfusable, match=r"i0.*" + THIS + r".*leave out `strict`"):
        run(graph=GRAPH, src={"x": X})


def test_the_bounded_path_warns_of_nothing():
    """Indices from Python lists are kept as read-only arrays, which torch dislikes."""
    w = torch.tensor([1.0, 2.0, 3.0])
    run = kernel(edge=lambda self, src, dst, edge: torch.special.i0(src.x) * edge.w[:, None])
    out = run(graph=GRAPH, src={"x": X}, edge={"w": w})
    sent = torch.special.i0(X) * w[:, None]
    torch.testing.assert_close(out, torch.stack([sent[2], sent[0] + sent[1], 0 * sent[0]]))


def reducer(**methods):
    body = {"identity": lambda self: 0.0, "combine": lambda self, left, right: left + right}
    return type("Own", (tg.Reducer,), body | methods)()


REDUCERS = {
    "shape": (
        reducer(identity=lambda self: torch.zeros(3)), THIS + r": `identity` of Own .*\[3\].*\[4\]",
    ),
    "self": (
        reducer(combine=lambda left, right: left + right),
        THIS + r": `combine` of Own cannot be called with two states.*combine\(self, left, right\)",
    ),
    "messages": (
        reducer(lift=lambda self, a, b: a * b), THIS + r": `lift` of Own .*'b'.*\*messages",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCERS)
def test_methods_of_reducers_that_do_not_fit(name):
    own, text = REDUCERS[name]
    run = kernel(edge=lambda self, src, dst, edge: src.x, reducer=own)
    with pytest.raises(errors.TigaError, match=text):
        run(graph=GRAPH, src={"x": X})


EDGES = {
    "a mask of nodes": (lambda s: tg.mask(s.x, torch.tensor([True, False, True])), r"\[3\].*\[4\]"),
    "arithmetic on a mask": (lambda s: tg.mask(s.x, s.x > 0) * 2, r"compute first.*torch\.where"),
    "a float index": (lambda s: X[s.x[:, 0]], r"integers or bools; got float32.*\.long\(\)"),
}


@pytest.mark.parametrize("name", EDGES)
def test_messages_that_cannot_be(name):
    made, text = EDGES[name]
    with pytest.raises(errors.TigaError, match=THIS + ".*" + text):
        kernel(edge=lambda self, src, dst, edge: made(src))(graph=GRAPH, src={"x": X})
