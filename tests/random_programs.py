"""Programs drawn at random: values, gradients and gradients of gradients, against torch.

Messages are made of fields of both ends, of the edge and of parameters, or of parameters alone.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

import tiga as tg
from tests.strategies import graphs

UNARY = {
    "neg": torch.neg, "sin": torch.sin, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu, "relu": torch.relu, "square": torch.square,
    "ratio": lambda x: x / (1 + x * x), "log": lambda x: torch.log1p(x.abs()),
    "root": lambda x: torch.sqrt(x * x + 0.1), "leaky": lambda x: torch.where(x > 0, x, 0.3 * x),
    "first": lambda x: x[..., :1], "flip": lambda x: x.flip(-1),
    "total": lambda x: x.sum(-1, keepdim=True), "average": lambda x: x.mean(-1, keepdim=True),
    "largest": lambda x: x.amax(-1, keepdim=True), "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
}  # fmt: skip
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "quotient": lambda x, y: x / (1.5 + torch.tanh(y)),
    "choice": lambda x, y: torch.where(x > y, x, 0.5 * y),
}
LEAVES = ("src", "dst", "edge", "param")


def _deeper(inner):
    return st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), inner),
        st.tuples(st.sampled_from(sorted(BINARY)), inner, inner),
    )


expressions = st.recursive(st.sampled_from(LEAVES), _deeper, max_leaves=6)


def evaluate(tree, leaves):
    """The value of an expression, a leaf's name or an op's name before its operands."""
    if isinstance(tree, str):
        return leaves[tree]
    function = {**UNARY, **BINARY}[tree[0]]
    return function(*(evaluate(child, leaves) for child in tree[1:]))


def message_of(tree, leaves, matrix):
    value = evaluate(tree, leaves)
    if matrix is None:
        return value
    return value.expand(*value.shape[:-1], len(matrix)) @ matrix


def kernel_of(tree, reducer, with_matrix, with_node):
    def edge(self, src, dst, edge, p, matrix=None):
        leaves = {"src": src.x, "dst": dst.x, "edge": edge.w, "param": p}
        return message_of(tree, leaves, matrix if with_matrix else None)

    body = {"reducer": getattr(tg, reducer)(), "edge": edge}
    if with_node and reducer in NODE:
        body["node"] = lambda self, dst, aggregate: aggregate * dst.x[..., :1] + 1.0
    return type("Drawn", (tg.MessagePassing,), body)()


REDUCE = {
    "sum": lambda rows: rows.sum(0),
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.amax(0),
    "var": lambda rows: rows.var(0, unbiased=False),
    "logsumexp": lambda rows: rows.logsumexp(0),
}
PER_EDGE = {"each": lambda row: row, "edge_softmax": lambda row: row.softmax(0)}
REDUCERS = sorted({**REDUCE, **PER_EDGE})
NODE = set(REDUCE) - {"logsumexp"}
"""The reducers whose results a `node` is given: rows without edges are -inf of logsumexp."""


def reduced(messages, reducer, dst, y, with_node):
    """The result of a reducer, and a node function, by torch's own operations."""
    if messages.ndim == 1:
        messages = messages.expand(len(dst), -1)
    if reducer in PER_EDGE:
        at = [torch.nonzero(dst == row).flatten() for row in range(len(y))]
        out = torch.cat([PER_EDGE[reducer](messages[edges]) for edges in at])
        return out[torch.argsort(torch.cat(at))]
    rows = [messages[dst == row] for row in range(len(y))]
    empty = -torch.inf if reducer == "logsumexp" else 0.0
    blank = messages.new_full(messages.shape[1:], empty)
    out = torch.stack([REDUCE[reducer](row) if len(row) else blank for row in rows])
    return out * y[:, :1] + 1.0 if with_node and reducer in NODE else out


def plain(tree, reducer, with_matrix, with_node, src, dst, tensors):
    x, y, w, p, matrix = tensors
    leaves = {"src": x[src], "dst": y[dst], "edge": w, "param": p}
    messages = message_of(tree, leaves, matrix if with_matrix else None)
    return reduced(messages, reducer, dst, y, with_node)


def derivatives(out, tensors, seed):
    """The result, its gradients, and those of a function of the gradients; zeros if none."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out)
    first = _gradients((out.where(out.isfinite(), 0.0) * weights).sum(), tensors)
    pairs = zip(first, tensors, strict=True)
    total = sum((g * torch.cos(3.0 * t.detach())).sum() for g, t in pairs)
    return [out, *first, *_gradients(total, tensors)]


def _gradients(total, tensors):
    if not total.requires_grad:
        return [torch.zeros_like(t) for t in tensors]
    found = torch.autograd.grad(total, tensors, create_graph=True, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)]


def operands(coo, width, seed, device):
    """Fields of sources, destinations and edges, a parameter and a matrix, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((coo[2], width), (coo[3], width), (len(coo[0]), 1), (width,), (width, width))
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        for shape in shapes
    ]


def check(tree, reducer, width, coo, with_matrix, with_node, seed, device="cpu"):
    """Compare a program's values and two derivatives with those of the same formulas in torch."""
    src, dst, num_src, num_dst = (*map(torch.from_numpy, coo[:2]), *coo[2:])
    src, dst = src.to(device), dst.to(device)
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    tensors = operands(coo, width, seed, device)
    x, y, w, p, matrix = tensors
    made = kernel_of(tree, reducer, with_matrix, with_node)
    extra = {"matrix": matrix} if with_matrix else {}
    got = made(graph=graph, src={"x": x}, dst={"x": y}, edge={"w": w}, p=p, **extra)
    want = plain(tree, reducer, with_matrix, with_node, src, dst, tensors)
    pairs = zip(derivatives(got, tensors, seed), derivatives(want, tensors, seed), strict=True)
    for ours, theirs in pairs:
        # By the norm: an element may be what is left of larger ones.
        size = theirs[theirs.isfinite()].norm().item()
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-8 * (1.0 + size))


drawn = given(
    tree=expressions,
    reducer=st.sampled_from(REDUCERS),
    width=st.sampled_from((1, 2, 5, 16, 33)),
    coo=graphs(max_nodes=12, max_edges=40).filter(lambda coo: coo[3] > 0),
    with_matrix=st.booleans(),
    with_node=st.booleans(),
    seed=st.integers(0, 2**31),
)
