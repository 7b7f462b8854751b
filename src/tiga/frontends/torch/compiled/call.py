"""A call inside `torch.compile` or `torch.export`: the program as a library op in their graph.

torch's compiler traces this file. Our own capture runs once at that time, as a constant of the
trace; tensors and numbers that `edge` reads are fetched along paths which the compiler follows and
guards. What else `edge` and `node` read is guarded by letting the compiler trace them on a few made
up rows: nothing reads the result, so it is dropped from the graph.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tiga.errors import TigaError, Unfusable
from tiga.frontends.message_passing import FieldSets
from tiga.frontends.signature import accepts, user_function
from tiga.frontends.torch.autograd import transforming
from tiga.frontends.torch.call import call
from tiga.frontends.torch.capture.draws import NodeOrder, Seed
from tiga.frontends.torch.capture.guards import Place
from tiga.frontends.torch.capture.messages import EdgeOrder
from tiga.frontends.torch.capture.parameters import ParamSource, is_tree, item_at, keys_of, tree_of
from tiga.frontends.torch.capture.program import Captured, FieldSource
from tiga.frontends.torch.compiled import transformed
from tiga.frontends.torch.compiled.callee import (
    EDGE_ORDER,
    FLOAT,
    INTEGER,
    NODE_ORDER,
    TENSOR,
    backward_of,
    callee,
    encode,
    training_text,
)
from tiga.frontends.torch.compiled.paths import follow, paths
from tiga.frontends.torch.variants import find_variant, key_of, state_of
from tiga.frontends.trees import described, rebuilt
from tiga.relations.inputs import CsrInput, TransposedInput
from tiga.relations.traced import counts

ROWS = 2
"""Rows of the made up fields: the fewest that no rule for 0 or 1 treats apart."""

_IN_FILES = (
    "the graph is in a file, whose pages are read by Python code that no compiled graph holds; use "
    "`graph.in_memory()`, or leave out `fullgraph`"
)

MOST_ITEMS = 4096
"""A tensor that `edge` makes itself is written into the graph item by item up to this size."""

FIELD, PARAM, PLACE, SEED, NONE = "field", "param", "place", "seed", "none"
CONSTANT = "constant"
NEEDS_VALUES = "needs values"
EXAMPLES: dict[type, Any] = {float: 1.5, int: 3}
"""Stand for numbers among the parameters, which may be symbolic, while a program is captured."""


class MadeUpRows:
    """The made up fields of one end."""

    def __init__(self, values: Mapping[str, torch.Tensor]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> torch.Tensor:
        return self._values[name]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Any:
        return iter(self._values)

    def keys(self) -> Any:
        """The names of the fields."""
        return self._values.keys()


def call_in_graph(kernel: Any, graph: Any, given: FieldSets, params: Mapping[str, Any]) -> Any:
    """As `call.call`, while torch's compiler or export traces."""
    if graph.paged:
        return _outside(kernel, graph, given, params, _IN_FILES)
    fields = _by_space(given)
    kind, first, second, num_src, num_dst = _topology(graph)
    where = str(first.device)
    plan = _plan_of(kernel, fields, params, kind, where)
    if plan[0] is None:
        return _outside(kernel, graph, given, params, plan[1])
    text, sources, result, count, rows = plan
    example = _read(kernel, fields, params, rows, first.device)
    of_kind = _gather(kernel, fields, params, sources, first.device)
    if torch.is_grad_enabled():
        wanted = [i for i, t in enumerate(of_kind[TENSOR]) if t.requires_grad]
        if wanted:
            text, why = _training(text, tuple(wanted), where)
            if text is None:
                return _outside(kernel, graph, given, params, why)
    tensors = [first, second, *of_kind[TENSOR]]
    sizes = [num_src, num_dst, *of_kind[INTEGER]]
    run = run_transformed if _transforming() else torch.ops.tiga.run
    found = run(text, tensors, of_kind[FLOAT], sizes)
    if result == 0 and count == 1:
        return found[0]
    return rebuilt(lambda i: found[i], result, example)


def _by_space(given: FieldSets) -> dict[str, Any]:
    """The fields of a call by namespace."""
    src, dst, edge, ndata = given
    if ndata is not None and not src and not dst:
        return {"ndata": ndata, "edge": edge or {}}
    return {"src": src or {}, "dst": dst or {}, "edge": edge or {}}


def _plan_of(
    kernel: Any, fields: Mapping[str, Any], params: Mapping[str, Any], kind: str, where: str
) -> Any:
    """The plan of a call: see `_plan`; parameters of which it needs the values are part of it."""
    signature = tuple(
        (space, tuple((n, t.dtype, _fixed(t.shape[1:])) for n, t in values.items()))
        for space, values in fields.items()
    )
    parameters = tuple((name, _described(value)) for name, value in params.items())
    # Torch's compiler guards what it takes the identity of.
    same = id(kernel), id(kernel.reducer)
    plan = kernel._in_trace(_plan, same, signature, parameters, kind, where)
    if plan[0] != NEEDS_VALUES:
        return plan
    with_values = tuple(
        (name, _described(value, True)) if name in plan[1] else (name, description)
        for (name, description), value in zip(parameters, params.values(), strict=True)
    )
    return kernel._in_trace(_plan, same, signature, with_values, kind, where)


def _gather(
    kernel: Any, fields: Any, params: Any, sources: Any, device: Any
) -> dict[str, list[Any]]:
    """The arguments of the program by their kind; numbers as tensors go to `device`."""
    of_kind: dict[str, list[Any]] = {
        TENSOR: [], FLOAT: [], INTEGER: [],
        EDGE_ORDER: [], NODE_ORDER: [],
    }  # fmt: skip
    for argument, (origin, *where) in sources:
        value = _VALUES[origin](kernel, fields, params, device, *where)
        if argument == FLOAT:
            # torch recompiles for each value of a float that an op takes, but not for sums.
            zero = torch.zeros((), dtype=torch.float64, device=device)
            of_kind[TENSOR].append(zero + value)
        else:
            of_kind[argument].append(value)
    return of_kind


def _constant(
    kernel: Any, fields: Any, params: Any, device: Any, dtype: torch.dtype, shape: Any, items: Any
) -> torch.Tensor:
    return torch.tensor(items, dtype=dtype, device=device).reshape(shape)


_VALUES: dict[str, Callable[..., Any]] = {
    FIELD: lambda kernel, fields, params, device, space, name: fields[space][name],
    PARAM: lambda kernel, fields, params, device, name, path: item_at(params[name], path),
    PLACE: lambda kernel, fields, params, device, path: follow(kernel, path),
    SEED: lambda *_: Seed().get(),
    CONSTANT: _constant,
    NONE: lambda *_: None,
}
"""The value of an argument by its origin: of the kernel, the fields and parameters of the call, the
device, and where it is."""


@torch._dynamo.assume_constant_result
def _transforming() -> bool:
    return transforming()


run_transformed = torch._dynamo.allow_in_graph(transformed.run)


def _described(value: Any, with_numbers: bool = False) -> Any:
    """What a program depends on in a parameter of the call, the values of its numbers or not."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, _fixed(value.shape))
    if type(value) in EXAMPLES and not with_numbers:
        return ("number", type(value))
    if is_tree(value):
        parts = tuple((key, _described(value[key], with_numbers)) for key in keys_of(value))
        return ("tree", type(value), parts)
    return ("value", value)


def _numbers(source: ParamSource, kind: str, *description: Any) -> Iterator[ParamSource]:
    """The numbers in a parameter of which the values are not known."""
    if kind == "number":
        yield source
    if kind == "tree":
        for key, part in description[1]:
            yield from _numbers(source.item(key), *part)


def _fixed(shape: Any) -> tuple[int, ...]:
    """Sizes that a program has in its types, so no symbols even where torch made some of them."""
    return tuple(index(size) for size in shape)


def _topology(graph: Any) -> Any:
    """How a graph was given: the kind of its two index tensors, these, and its counts."""
    made = graph.input
    if isinstance(made, TransposedInput):
        kind, first, second, num_src, num_dst = _topology(made.base)
        if kind == "coo":
            return kind, second, first, num_dst, num_src
        return "transposed", first, second, num_dst, num_src
    kind = "csr" if isinstance(made, CsrInput) else "coo"
    if graph.marks is not None:
        indices = graph.marks[2:]
        first, second = indices if len(indices) == 2 else (indices[0][0], indices[0][1])
        return kind, first, second, *counts(graph)
    pair = (made.pointers, made.sources) if kind == "csr" else (made.sources, made.destinations)
    return kind, _tensor(pair[0]), _tensor(pair[1]), *counts(graph)


def _tensor(indices: Any) -> torch.Tensor:
    """Indices as a tensor, where the graph's fields are."""
    data, like = indices.data, indices.made
    if isinstance(data, torch.Tensor):
        return data
    return torch.as_tensor(data, device=None if like is None else like.device)


@torch._dynamo.assume_constant_result
def _training(text: str, wanted: tuple[int, ...], device: str) -> tuple[str | None, str]:
    """The training form, or why it, or its gradient, cannot be compiled for a device."""
    try:
        full = training_text(text, wanted, device.startswith("cuda"))
        backward = backward_of(full, wanted, callee(full).floats)
        for program in (full, backward.text):
            callee(program).unit.plain().compile(torch.device(device))
    except Unfusable as error:
        return None, f"not fused: {error}"
    return full, ""


def _plan(
    kernel: Any, same: tuple[int, int], signature: Any, given: Any, graph_kind: str, device: str
) -> Any:
    """The program of a call, where its arguments come from, and the trees of its results.

    `(None, why)` where the call cannot be part of a graph; `(NEEDS_VALUES, names)` where it depends
    on the values of these parameters.
    """
    fields = {
        space: {n: torch.empty((1, *shape), dtype=d, device=device) for n, d, shape in values}
        for space, values in signature
    }
    params = {name: _made_up(device, *description) for name, description in given}
    captured, why = _fused(kernel, fields, params, device)
    if captured is None:
        return None, why
    unknown = {n for name, description in given for n in _numbers(ParamSource(name), *description)}
    read = unknown & captured.params.keys()
    if read:
        return NEEDS_VALUES, tuple(sorted({source.name for source in read}))
    sources = _sources(kernel, captured)
    if sources is None:
        return None, "a tensor or number that `edge` reads is nowhere that torch's compiler sees"
    arguments = [TENSOR if a == FLOAT else a for a, _ in sources]
    text = encode(captured.program, graph_kind, arguments)
    count = len(captured.program.outputs)
    rows = captured.rows and (described(captured.rows[0]), captured.rows[1])
    return text, tuple(sources), described(captured.result), count, rows


def _fused(kernel: Any, fields: Any, params: Any, device: str) -> tuple[Captured | None, str]:
    """What is captured of a call like this one and compiles; else why the call is not fused."""
    try:
        with _disable_current_modes():
            variant = find_variant(state_of(kernel), kernel, key_of(fields, params), fields, params)
    except TigaError as error:
        return None, f"{type(error).__name__}: {error}"
    if variant.captured is None:
        assert variant.bounded is not None
        return None, f"not fused: {variant.bounded.reason}"
    assert variant.unit is not None
    try:
        variant.unit.plain().compile(torch.device(device))
    except Unfusable as error:
        return None, f"not fused: {error}"
    return variant.captured, ""


def _made_up(device: str, kind: str, *description: Any) -> Any:
    if kind == "value":
        return description[0]
    if kind == "number":
        return EXAMPLES[description[0]]
    if kind == "tree":
        made, items = description
        return tree_of(made, {key: _made_up(device, *item) for key, item in items})
    dtype, shape = description
    return torch.empty(shape, dtype=dtype, device=device)


def _sources(kernel: Any, captured: Any) -> list[Any] | None:
    """For each input of a program: what argument of the op it is, and where its value is."""
    places = [s for s in captured.sources if isinstance(s, Place)]
    found = dict(zip(map(id, places), paths(kernel, places), strict=True))
    sources: list[Any] = []
    for source, node in zip(captured.sources, captured.program.inputs, strict=True):
        argument = _ORDERS.get(type(source), TENSOR)
        if node in captured.numbers:
            argument = FLOAT if node.type.dtype.is_float else INTEGER
        origin = _origin_of(source, found)
        if origin is None:
            return None
        sources.append((argument, origin))
    return sources


_ORDERS: dict[type, str] = {EdgeOrder: EDGE_ORDER, NodeOrder: NODE_ORDER}
_ORIGINS: dict[type, Callable[[Any], Any]] = {
    FieldSource: lambda source: (FIELD, source.namespace, source.name),
    ParamSource: lambda source: (PARAM, source.name, source.path),
    Seed: lambda source: (SEED,),
    EdgeOrder: lambda source: (NONE,),
    NodeOrder: lambda source: (NONE,),
}


def _origin_of(source: Any, found: Mapping[int, Any]) -> Any:
    """Where traced code gets a value: see `_VALUES`. None if it cannot; `found` are the paths to
    places."""
    if isinstance(source, Place):
        path = found[id(source)]
        return None if path is None else (PLACE, path)
    if isinstance(source, torch.Tensor):
        fits = source.numel() <= MOST_ITEMS
        items = tuple(source.flatten().tolist()) if fits else ()
        return (CONSTANT, source.dtype, tuple(source.shape), items) if fits else None
    return _ORIGINS[type(source)](source)


def _read(kernel: Any, fields: Any, params: Any, rows: Any, device: Any) -> Any:
    """Run `edge` and `node` on made up rows, for the guards on what they read: their result."""
    made = {
        space: {n: t.new_ones((ROWS, *t.shape[1:])) for n, t in values.items()}
        for space, values in fields.items()
    }
    src = made["ndata"] if "ndata" in made else made["src"]
    dst = made["ndata"] if "ndata" in made else made["dst"]
    edge = MadeUpRows(made["edge"])
    sent = kernel.edge(MadeUpRows(src), MadeUpRows(dst), edge, **_taken(kernel, "edge", params))
    if rows is None:
        return sent
    tree, layouts = rows
    filled = [torch.ones((ROWS, *shape), dtype=dtype, device=device) for dtype, shape in layouts]
    given = rebuilt(lambda i: filled[i], tree, sent)
    return kernel.node(MadeUpRows(dst), given, **_taken(kernel, "node", params))


def _taken(kernel: Any, function: str, params: Mapping[str, Any]) -> dict[str, Any]:
    names = kernel._in_trace(_names, function, tuple(params))
    return {name: params[name] for name in names}


def _names(kernel: Any, function: str, names: tuple[str, ...]) -> tuple[str, ...]:
    target = user_function(kernel, function)
    return tuple(name for name in names if accepts(target, name))


def _outside(kernel: Any, graph: Any, given: FieldSets, params: Any, why: str) -> Any:
    """Run the call as without a compiler, between two graphs; `fullgraph` says why it can't."""
    if not torch.compiler.is_dynamo_compiling():
        raise Unfusable(why)
    torch._dynamo.graph_break(msg=why)
    return _eager(kernel, graph, given, params)


_eager = torch._dynamo.disable(call)
