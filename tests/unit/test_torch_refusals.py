"""What `edge`, `node` and calls may not do: refused with the line, and the next call works."""

import math
import re

import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, SOURCES, field, kernel, summed
from tiga import errors

ENTITY_AXIS = {
    "shape": lambda s, d, e: s.x * s.x.shape[0],
    "shape compared": lambda s, d, e: s.x if s.x.shape[0] > 5 else -s.x,
    "size": lambda s, d, e: s.x / s.x.size(0),
    "len": lambda s, d, e: s.x * len(s.x),
    "numel": lambda s, d, e: s.x / s.x.numel(),
    "range": lambda s, d, e: sum(s.x * i for i in range(s.x.shape[0])),
    "shapes broadcast": lambda s, d, e: torch.broadcast_shapes(s.x.shape, (1, 2)),
    "sqrt of shape": lambda s, d, e: s.x / math.sqrt(s.x.shape[0]),
    "arange": lambda s, d, e: s.x * torch.arange(s.x.shape[0])[:, None],
    "sum": lambda s, d, e: s.x.sum(0),
    "sum of all": lambda s, d, e: s.x / s.x.sum(),
    "mean": lambda s, d, e: s.x - s.x.mean(dim=0),
    "max": lambda s, d, e: s.x - s.x.max(),
    "softmax": lambda s, d, e: s.x.softmax(0),
    "cumsum": lambda s, d, e: s.x.cumsum(0),
    "index": lambda s, d, e: s.x[0],
    "slice": lambda s, d, e: s.x[:2],
    "mask": lambda s, d, e: s.x[s.x[:, 0] > 0],
    "flip": lambda s, d, e: s.x.flip(0),
    "roll": lambda s, d, e: s.x.roll(1, 0),
    "transpose": lambda s, d, e: s.x.t(),
    "T": lambda s, d, e: s.x.T,
    "permute": lambda s, d, e: s.x.permute(1, 0),
    "flatten": lambda s, d, e: s.x.reshape(-1),
    "unsqueeze": lambda s, d, e: s.x.unsqueeze(0),
    "iterate": lambda s, d, e: torch.stack([row * 2 for row in s.x]),
    "cat": lambda s, d, e: torch.cat([s.x, d.x], 0),
    "stack": lambda s, d, e: torch.stack([s.x, d.x]),
    "einsum": lambda s, d, e: torch.einsum("ef,eg->fg", s.x, d.x),
    "matmul": lambda s, d, e: s.x.T @ d.x,
    "batch norm": lambda s, d, e: torch.nn.functional.batch_norm(s.x, None, None, training=True),
    "sort, out of the table": lambda s, d, e: s.x.sort(0).values,
}  # fmt: skip


@pytest.mark.parametrize("name", ENTITY_AXIS)
def test_the_entity_axis_is_refused(name):
    run = kernel(ENTITY_AXIS[name])
    with pytest.raises(errors.InvalidValue) as caught:
        run(graph=GRAPH, src={"x": field(4, 2)}, dst={"x": field(5, 2)})
    if "out of the table" not in name:
        line = ENTITY_AXIS[name].__code__.co_firstlineno
        assert re.search(rf"test_torch_refusals\.py:{line}\b", str(caught.value)), caught.value


DATA = {
    "branch": lambda s, d, e: s.x if (s.x > 0).all() else d.x,
    "item": lambda s, d, e: s.x * s.x[:, 0].item(),
    "float": lambda s, d, e: s.x * float(d.x[:, 0]),
    "tolist": lambda s, d, e: s.x * s.x.tolist(),
    "numpy": lambda s, d, e: s.x * s.x.numpy(),
    "contains": lambda s, d, e: s.x if 1.0 in s.x else d.x,
    "element": lambda s, d, e: s.x if s.x[:, 0] > 0 else d.x,
}


@pytest.mark.parametrize("name", DATA)
def test_data_dependent_python_is_refused(name):
    with pytest.raises(errors.InvalidValue) as caught:
        kernel(DATA[name])(graph=GRAPH, src={"x": field(4, 2)}, dst={"x": field(5, 2)})
    line = DATA[name].__code__.co_firstlineno
    assert f"test_torch_refusals.py:{line}" in str(caught.value)


def test_a_buffer_cannot_decide_a_branch():
    limit = torch.tensor(1.0)
    with pytest.raises(errors.InvalidValue, match="Python attribute"):
        kernel(lambda s, d, e: s.x if limit > 0 else -s.x)(graph=GRAPH, src={"x": field(4)})


WRITES = {
    "add_": lambda s, d, e: s.x.add_(1),
    "augmented": lambda s, d, e: _augmented(s),
    "item": lambda s, d, e: s.x.__setitem__((slice(None), 0), 0.0),
    "view": lambda s, d, e: s.x.view(-1, 1, 2).mul_(2),
    "out": lambda s, d, e: torch.exp(s.x, out=s.x),
}


def _augmented(src):
    x = src.x
    x += 1
    return x


@pytest.mark.parametrize("name", WRITES)
def test_in_place_writes_to_fields_are_refused(name):
    x = field(4, 2)
    before = x.clone()
    with pytest.raises(errors.InvalidValue, match=r"in place to `src\.x`"):
        kernel(WRITES[name])(graph=GRAPH, src={"x": x}, dst={"x": field(5, 2)})
    assert torch.equal(x, before)


def test_fields_asked_of_an_aggregate():
    class Swapped(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x

        def node(self, aggregate, dst):
            return dst.x + aggregate

    with pytest.raises(AttributeError, match=r"no attribute `x`.*node\(self, dst, aggregate\)"):
        Swapped()(graph=GRAPH, src={"x": field(4, 2)}, dst={"x": field(5, 2)})


def test_a_scalar_per_edge_needs_its_feature_axis():
    with pytest.raises(errors.InvalidValue, match=r"\[E, 2\] and \[E\].*unsqueeze"):
        kernel(lambda s, d, e: s.x * e.w)(graph=GRAPH, src={"x": field(4, 2)}, edge={"w": field(8)})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ({"graph": None}, TypeError, "must be a tiga Graph; got NoneType"),
        ({"src": {"x": field(3, 2)}}, ValueError, r"`src\.x` has shape \[3, 2\].*num_src = 4"),
        ({"edge": {"w": field(7)}}, ValueError, r"`edge\.w` has shape \[7\].*num_edges = 8"),
        ({"dst": {"z": field(4)}}, ValueError, r"`dst\.z` has shape \[4\].*num_dst = 5"),
        ({"src": {"x": torch.tensor(1.0)}}, ValueError, r"`src\.x` has shape \[\]"),
        ({"src": {"x": [1.0]}}, TypeError, r"`src\.x` must be a torch.Tensor; got list"),
        ({"src": {"x": field(4, 2).numpy()}}, TypeError, "torch.as_tensor"),
        ({"src": field(4, 2)}, TypeError, "must be a mapping"),
        ({"src": {"x": field(4).to(torch.complex64)}}, TypeError, "complex64; supported are"),
        ({"src": {"y": field(4)}}, ValueError, r"`src\.x` is read but was not passed.*has: y"),
        ({"src": {}, "ndata": {"x": field(4)}}, ValueError, "4 sources and 5 destinations"),
        ({"ndata": {"x": field(4)}}, TypeError, "`ndata` came with `src`"),
        ({"alpha": 1.0}, TypeError, "takes a parameter `alpha`"),
        ({"edata": {"w": field(8)}}, TypeError, r"`edata`\. Did you mean `edge`\? Fields are"),
        ({"nodata": {"x": field(4)}}, TypeError, r"Did you mean `ndata`\? .*`src=\{\.\.\.\}`"),
        ({"src": {"x": field(4, 2).to_sparse_csr()}}, TypeError, "dense"),
        ({"src": {"x": torch.empty(4, 2, device="meta")}}, NotImplementedError, "is on meta"),
    ],
)
def test_bad_calls_are_refused_and_the_next_call_works(call, error, text):
    run = kernel(lambda s, d, e: s.x)
    good = {"graph": GRAPH, "src": {"x": field(4, 2)}}
    with pytest.raises(error, match=text):
        run(**{**good, **call})
    torch.testing.assert_close(run(**good), summed(good["src"]["x"][SOURCES]))


@pytest.mark.parametrize("reducer", [tg.sum, "sum", torch.sum, None])
def test_a_reducer_that_is_none(reducer):
    run = kernel(lambda s, d, e: s.x)
    run.reducer = reducer
    with pytest.raises(errors.InvalidType, match="must be a tiga reducer"):
        run(graph=GRAPH, src={"x": field(4)})


def test_the_name_of_a_parameter_is_suggested():
    class Scaled(tg.MessagePassing):
        def edge(self, src, dst, edge, temperature):
            return src.x * temperature

    with pytest.raises(errors.InvalidType, match=r"Did you mean `temperature`\?"):
        Scaled()(graph=GRAPH, src={"x": field(4)}, temprature=2.0)


@pytest.mark.parametrize("reducers", [(tg.sum(), tg.max()), [tg.sum()], {"total": tg.sum()}])
def test_several_reducers_on_the_class_are_told_how(reducers):
    run = kernel(lambda s, d, e: s.x, reducers)
    with pytest.raises(errors.InvalidType, match=r"tg\.multi\(tg\.sum\(\), tg\.max\(\)\)"):
        run(graph=GRAPH, src={"x": field(4)})


def test_results_that_are_no_messages():
    for result, text in ((None, "returned None"), ("x", "returned 'x'"), ((), "no message")):
        with pytest.raises(errors.InvalidType, match=text):
            kernel(lambda s, d, e, result=result: result)(graph=GRAPH, src={"x": field(4)})
    with pytest.raises(errors.InvalidType, match="no `edge`"):
        tg.MessagePassing()(graph=GRAPH)


def test_a_traced_value_that_escapes():
    kept = []

    def edge(src, dst, edge):
        kept.append(src.x)
        return src.x

    kernel(edge)(graph=GRAPH, src={"x": field(4)})
    with pytest.raises(errors.InvalidValue, match="after they returned"):
        kept[0] + 1


def keeping(read):
    """A kernel, and the list in which its `edge` keeps what `read` takes from the sources."""
    kept = []

    def edge(src, dst, edge):
        kept.append(read(src))
        return src.x

    return kernel(edge), kept


OF_ANOTHER_TRACE = {
    "a field": (lambda s: s.x, lambda own, kept: own * kept),
    "a result": (lambda s: s.x.exp(), lambda own, kept: own + kept),
    "returned": (lambda s: s.x * 2, lambda own, kept: kept),
    "masked": (lambda s: s.x > 0, lambda own, kept: tg.mask(own, kept)),
    "in a list": (lambda s: s.x, lambda own, kept: torch.stack([own, kept], -1)),
    "its shape": (lambda s: s.x, lambda own, kept: own.reshape(kept.shape)),
    "an index": (lambda s: s.x.long(), lambda own, kept: torch.eye(3, dtype=own.dtype)[kept]),
    "written to": (lambda s: s.x + 1, lambda own, kept: kept.add_(own)),
}


@pytest.mark.parametrize("name", OF_ANOTHER_TRACE)
def test_a_value_that_another_kernel_kept_is_refused_with_both_lines(name):
    read, use = OF_ANOTHER_TRACE[name]
    run, kept = keeping(read)
    x = field(4)
    run(graph=GRAPH, src={"x": x})
    other = kernel(lambda s, d, e: use(s.x, kept[0]))
    with pytest.raises(errors.InvalidValue, match="kept and used after they returned") as caught:
        other(graph=GRAPH, src={"x": x + 1})
    made = read.__code__.co_firstlineno
    assert f"a value made at {__file__}:{made} of `edge` or `node`" in str(caught.value)
    assert re.match(r".*test_torch_refusals\.py:\d+: ", str(caught.value))


def test_a_value_kept_from_an_earlier_call_is_refused():
    kept = []

    def edge(src, dst, edge):
        kept.append(src.x)
        return src.x * kept[0]

    run = kernel(edge)
    run(graph=GRAPH, src={"x": field(4)})
    with pytest.raises(errors.InvalidValue, match=r"made at .* was kept"):
        run(graph=GRAPH, src={"x": field(4, 2)})


def test_a_value_of_node_used_in_edge_is_refused():
    kept = []

    def node(dst, aggregate):
        kept.append(dst.x)
        return aggregate + dst.x

    call = {"graph": GRAPH, "src": {"x": field(4)}, "dst": {"x": field(5)}}
    kernel(lambda s, d, e: s.x, node=node)(**call)
    with pytest.raises(errors.InvalidValue, match=r"made at .* was kept"):
        kernel(lambda s, d, e: s.x + kept[0])(**call)


def test_a_value_of_edge_used_in_node_is_refused():
    kept = []

    def edge(src, dst, edge):
        kept.append(src.x)
        return src.x

    call = {"graph": GRAPH, "src": {"x": field(4)}, "dst": {"x": field(5)}}
    with pytest.raises(errors.InvalidValue, match=r"test_torch_refusals\.py:\d+: "):
        kernel(edge, node=lambda dst, aggregate: aggregate + kept[0])(**call)


def test_fields_kept_as_a_whole_are_refused():
    run, kept = keeping(lambda s: s)
    run(graph=GRAPH, src={"x": field(4), "y": field(4)})
    with pytest.raises(errors.InvalidValue, match="`src` of `edge` or `node` was kept"):
        kernel(lambda s, d, e: s.x * kept[0].y)(graph=GRAPH, src={"x": field(4)})


NUMBERS = {
    "alone": lambda own, kept, x: x * kept,
    "with an own one": lambda own, kept, x: x * (own + kept),
    "sent": lambda own, kept, x: kept,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_another_kernel_kept_is_refused(name):
    class Scaled(tg.MessagePassing):
        alpha = 2.0

        def edge(self, src, dst, edge):
            kept.append(self.alpha * 1.5)
            return src.x * self.alpha

    class Reads(tg.MessagePassing):
        alpha = 5.0

        def edge(self, src, dst, edge):
            return NUMBERS[name](self.alpha, kept[0], src.x)

    kept = []
    call = {"graph": GRAPH, "src": {"x": field(4)}}
    Scaled()(**call)
    with pytest.raises(errors.InvalidValue, match=r"number 3\.0 .*was kept"):
        Reads()(**call)


def test_errors_of_torch_name_the_line():
    def edge(src, dst, edge):
        return src.x @ torch.ones(3, 2, dtype=torch.float64)

    with pytest.raises(errors.InvalidValue, match=r"test_torch_refusals\.py:\d+"):
        kernel(edge)(graph=GRAPH, src={"x": field(4, 2)})


class NarrowedState(tg.Reducer):
    def identity(self):
        return 0.0

    def lift(self, m):
        return m

    def combine(self, a, b):
        return (a + b).sum(-1)

    def finalize(self, state):
        return state


MESSAGES = {
    "score of another rank": (tg.softmax(), lambda k, s, p: k.reducer(s.x, s.x.sum(-1)), "scores"),
    "no score": (tg.softmax(), lambda k, s, p: s.x, r"Softmax takes 2: return `self\.reducer"),
    "one argument": (tg.softmax(), lambda k, s, p: k.reducer(s.x), r"takes 2 .* got 1"),
    "nothing": (tg.sum(), lambda k, s, p: None, r"returned None .* expected a tensor"),
    "a string": (tg.sum(), lambda k, s, p: "x", r"returned 'x' of type str; expected a tensor"),
    "std of bools": (tg.std(), lambda k, s, p: s.x > 0, r"Std takes .*floating-point.* got bool"),
    "logsumexp of integers": (tg.logsumexp(), lambda k, s, p: s.x.long(), r"got int64"),
    "max of bools": (tg.max(), lambda k, s, p: s.x > 0, r"Max takes .* got bool"),
    "mask of floats": (tg.sum(), lambda k, s, p: tg.mask(s.x, s.x), r"`keep` must hold bools"),
    "state of another shape": (
        NarrowedState(), lambda k, s, p: s.x, r"expected float64\[2\], got float64\[\]",
    ),
    "tensor times str": (tg.sum(), lambda k, s, p: s.x * p, r"meets the str 'sum' in `mul`"),
    "list less tensor": (tg.sum(), lambda k, s, p: [p] - s.x, r"meets the list .* in `rsub`"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_reducer_cannot_take_is_refused_with_the_line(name):
    chosen, message, reason = MESSAGES[name]

    class Sent(tg.MessagePassing):
        reducer = chosen

        def edge(self, src, dst, edge, mode):
            return message(self, src, mode)

    call = {"graph": GRAPH, "src": {"x": field(4, 2)}, "mode": "sum"}
    with pytest.raises((errors.InvalidType, errors.InvalidValue), match=reason) as caught:
        Sent()(**call)
    assert re.match(r".*test_torch_refusals\.py:\d+: ", str(caught.value))
    with pytest.raises(type(caught.value), match=reason):
        Sent()(**call)


ODD = {
    "on another device": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "of an odd dtype": lambda: torch.ones(2, dtype=torch.uint16),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("operator", ["__add__", "__radd__", "__eq__", "__lt__"])
def test_tensors_that_no_kernel_reads(name, operator):
    other = ODD[name]()
    run = kernel(lambda s, d, e: torch.where(getattr(s.x, operator)(other) > 0, s.x, 0.0))
    with pytest.raises((errors.InvalidType, errors.UnsupportedByBackend), match=r"other`"):
        run(graph=GRAPH, src={"x": field(4, 2)})


def test_a_tensor_that_moves_to_another_device_between_calls():
    class Scaled(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * self.scale

    run, x = Scaled(), field(4, 2)
    run.scale = torch.ones(2)
    expected = run(graph=GRAPH, src={"x": x})
    run.scale = torch.ones(2, device="meta")
    with pytest.raises(errors.UnsupportedByBackend, match="scale` is on meta"):
        run(graph=GRAPH, src={"x": x})
    run.scale = torch.ones(2)
    assert torch.equal(run(graph=GRAPH, src={"x": x}), expected)
