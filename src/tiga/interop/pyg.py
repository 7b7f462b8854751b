"""Run layers of PyTorch Geometric through Tiga.

`compile` takes a layer whose `message`, `aggregate` and `edge_update` are torch code per edge, and
gives one that computes the same with fused kernels. A call is a program whole, with what the layer
does per node and with the loops that it adds; where no program can hold the layer's `forward`, its
messages alone are, and the rest stays torch.
"""

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from tiga.errors import InvalidType, Unfusable
from tiga.interop._batch_norm import keep, layers_with_statistics
from tiga.interop._edge_sets import GIVEN, AlongOther, EdgeSet, NotWhole, ParallelLoops
from tiga.interop._graphs import Topologies, graph_of
from tiga.interop._lazy_values import EdgeUpdate, Kept, assigned, made
from tiga.interop._pyg_call import CallLayout, LayerCall, call_of
from tiga.interop._pyg_layer import HOOKED, RESULT, STATISTICS, WholeLayer, is_hooked
from tiga.interop._pyg_messages import LayerMessages
from tiga.interop._pyg_plan import (
    ENDS,
    HOOKS,
    INDICES,
    Binding,
    Stage,
    plain,
    stages_of,
)


def compile(conv: torch.nn.Module) -> Any:
    """A copy of a PyG layer, or of a model, that passes its messages through Tiga.

    Args:
        conv: a `torch_geometric.nn.MessagePassing`, or a module that holds some.

    The result is called as the layer is, and gives its results and gradients. Parameters, buffers
    and submodules are shared with `conv`. Graphs made from `edge_index` are kept and used again
    while it is the same tensor or holds the same edges. `result.propagate.explain()` says what the
    kernels fuse.

    Raises:
        InvalidType: `conv` is no module or holds no layer; a layer has a `forward` of its own
            beside its class's; a call passes a sparse matrix instead of an `edge_index`.
        Unfusable: `message`, `aggregate` or `edge_update` do what no kernel can: at the first
            call, with the reason.

    Example:
        >>> import torch, tiga.interop.pyg
        >>> from torch_geometric.nn import SAGEConv
        >>> conv = SAGEConv(4, 2)
        >>> fused = tiga.interop.pyg.compile(conv)
        >>> x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [2, 2]])
        >>> torch.testing.assert_close(fused(x, edge_index), conv(x, edge_index))
    """
    from torch_geometric.nn import MessagePassing as Layer

    if not isinstance(conv, torch.nn.Module):
        raise InvalidType(f"pyg.compile takes a layer of PyG; got {type(conv).__name__}.")
    if not any(isinstance(m, Layer) for m in conv.modules()):
        raise InvalidType(
            f"pyg.compile: {type(conv).__name__} holds no torch_geometric.nn.MessagePassing."
        )
    return _compiled(conv, Layer, Topologies(), {})


def _compiled(module: Any, layer: type, graphs: "Topologies", copies: dict[int, Any]) -> Any:
    """A shallow copy of a module in which layers pass their messages through Tiga."""
    if id(module) in copies:
        return copies[id(module)]
    if not any(isinstance(m, layer) for m in module.modules()):
        return module
    result = copies[id(module)] = copy.copy(module)
    state = vars(result)
    state["_modules"] = {
        name: child if child is None else _compiled(child, layer, graphs, copies)
        for name, child in module._modules.items()
    }
    if isinstance(module, layer):
        if "forward" in state and not isinstance(state["forward"], Forward):
            raise InvalidType(
                f"pyg.compile: `forward` was assigned to a {type(module).__name__}, and what it "
                f"calls is that layer, not the copy. Give a subclass this `forward`."
            )
        state["edge_updater"] = EdgeUpdater(result)
        state["forward"] = Forward(result, Propagate(result, graphs))
        state["propagate"] = state["forward"].propagate
    return result


class Forward:
    """`forward` of a compiled layer."""

    def __init__(self, conv: Any, propagate: "Propagate") -> None:
        self.conv = conv
        self.propagate = propagate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's own `forward`: one program, or with its messages through Tiga."""
        if not torch.compiler.is_compiling():
            self.propagate.graphs.begin()
            call = call_of(self.conv, args, kwargs)
            if call is not None and self._may_be_whole(call):
                try:
                    return self.propagate.whole(call)
                except ParallelLoops:
                    pass  # of this graph; there are others
                except (NotWhole, Unfusable) as reason:
                    self.propagate.refusals[call.layout] = str(reason)
        # Some settings of layers put another `propagate` on the layer.
        if self.conv.propagate is not self.propagate:
            self.conv.propagate = self.propagate
        return made(type(self.conv).forward(self.conv, *args, **kwargs))

    def _may_be_whole(self, call: LayerCall) -> bool:
        few = min(*call.counts, call.edge_index.shape[1]) < 2
        if few and layers_with_statistics(self.conv):
            return False  # torch refuses statistics of one value
        layout, refusals = call.layout, self.propagate.refusals
        reason = refusals.get(layout)
        if reason is not None and reason.endswith(HOOKED) and not is_hooked(self.conv):
            del refusals[layout]
        return layout not in refusals


class EdgeUpdater:
    """`edge_updater` of a compiled layer."""

    def __init__(self, conv: Any) -> None:
        self.conv = conv

    def __call__(self, edge_index: Any, size: Any = None, **given: Any) -> EdgeUpdate:
        return EdgeUpdate(self.conv, edge_index, size, given)


MOST_TRACES = 3
"""How often a layer is traced until it is known along which edges its messages go."""


class Propagate:
    """`propagate` of a compiled layer. Copies and pickles of it start without programs."""

    def __init__(self, conv: Any, graphs: Topologies) -> None:
        self.conv = conv
        self.graphs = graphs
        self.kernels: dict[tuple[Stage, ...], LayerMessages] = {}
        self.layer_programs: dict[CallLayout, WholeLayer] = {}
        self.refusals: dict[CallLayout, str] = {}
        """Why calls of a layout are no whole programs."""
        self.keep_one_loop: set[CallLayout] = set()
        """Layouts whose programs know one loop a node at most."""
        self.programs = SimpleNamespace()

    def __call__(self, edge_index: Any, size: Any = None, **given: Any) -> torch.Tensor:
        conv = self.conv
        self._require_plain(edge_index)
        binding = Binding(conv, conv._check_input(edge_index, size), edge_index.shape[1])
        binding.stage("message", "message", given)
        binding.stage("aggregate", "aggregate", given)
        edges, key = _plain_tensor(edge_index), self._key(binding, edge_index)
        if torch.compiler.is_compiling():
            graph = graph_of(edges, key)
            kernel = getattr(self.programs, _named(self, plain(binding.stages)))
        else:
            graph = self.graphs.graph(edges, key)
            kernel = self._kernel(tuple(binding.stages))
        fields = binding.fields
        out = kernel(
            graph=graph, src=fields["src"], dst=fields["dst"], edge=fields["edge"],
            **fields["param"],
        )  # fmt: skip
        for name in _assigned(self):
            setattr(conv, name, Kept(conv, name, edge_index, size, given))
        return conv.update(out, **self._update(given))

    def whole(self, call: LayerCall) -> Any:
        """The result of the layer's `forward` by one program.

        Raises:
            NotWhole, Unfusable: no program can hold it.
        """
        kernel = self.layer_programs.get(call.layout)
        edges = GIVEN if kernel is None else kernel.edges
        known = self.graphs.known
        for _ in range(MOST_TRACES):
            try:
                return self._whole(call, edges)
            except AlongOther as found:
                edges, self.graphs.known = found.edges, known
            except ParallelLoops:
                self.keep_one_loop.add(call.layout)
                raise
            except (NotWhole, Unfusable):
                del self.layer_programs[call.layout]
                raise
            finally:
                if call.layout not in self.layer_programs:
                    self.graphs.known = known
        raise NotWhole("messages along several sets of edges")

    def _whole(self, call: LayerCall, edges: EdgeSet) -> Any:
        """The same, with messages along a set of edges."""
        kernel = self.layer_programs.get(call.layout)
        if kernel is None or kernel.edges != edges:
            kernel = self.layer_programs[call.layout] = WholeLayer(self.conv, call.layout, edges)
        backwards = self.conv.flow != "source_to_target"
        key = (backwards, *(call.counts[::-1] if backwards else call.counts))
        has_fields = bool(call.fields["edge"])
        derived = self.graphs.derived(call.edge_index, key, edges, has_fields)
        if derived.has_parallel_loops and call.layout in self.keep_one_loop:
            raise ParallelLoops
        fields = dict(call.fields)
        params = fields.pop("param")
        fields["edge"] = derived.fields(fields["edge"])
        result = kernel(graph=derived.graph, **fields, **params)
        return self._kept(result) if _is_with_statistics(result) else result

    def _kept(self, result: Any) -> Any:
        """What `forward` returned, once BatchNorms know the statistics of this call."""
        found = [(name, *values) for (_, name), values in result[STATISTICS].items()]
        keep(layers_with_statistics(self.conv), found)
        return result[RESULT]

    def explain(self) -> str:
        """What the kernels of this layer fuse, per way that it was called, and why the rest of the
        layer is in no program, where that is so."""
        kernels = (*self.layer_programs.values(), *self.kernels.values())
        reasons = [f"not one program: {reason}" for reason in self.refusals.values()]
        return "\n".join([*(kernel.explain() for kernel in kernels), *reasons])

    def _kernel(self, plan: tuple[Stage, ...]) -> LayerMessages:
        if plan not in self.kernels:
            self.kernels[plan] = LayerMessages(self.conv, plan)
        return self.kernels[plan]

    def _key(self, binding: Binding, edge_index: torch.Tensor) -> tuple[bool, Any, Any]:
        src, dst = binding.dim("src"), binding.dim("dst")
        num_src, num_dst = binding.size[src], binding.size[dst]
        num_dst = num_src if num_dst is None else num_dst
        if num_dst is None:
            # As PyG: as many nodes as the largest index needs.
            num_dst = int(edge_index[dst].max()) + 1 if edge_index.numel() else 0
        return src == 1, num_src, num_dst

    def _update(self, given: Mapping[str, Any]) -> dict[str, Any]:
        parameters = self.conv.inspector.get_params("update")
        edges = [p.name for p in parameters if p.name[-2:] in ENDS or p.name in INDICES]
        if edges:
            raise Unfusable(
                f"{type(self.conv).__name__}: `update` takes `{edges[0]}`, a value of the edges."
            )
        return self.conv.inspector.collect_param_data("update", dict(given))

    def _require_plain(self, edge_index: Any) -> None:
        conv, name = self.conv, type(self.conv).__name__
        if not isinstance(edge_index, torch.Tensor) or edge_index.layout is not torch.strided:
            raise InvalidType(
                f"{name}: expected `edge_index` [2, num_edges]; got {type(edge_index).__name__}, "
                f"for which PyG has its own matrix products. Pass the indices of the edges."
            )
        if conv.explain:
            raise Unfusable(
                f"{name}: explanations need the messages of single edges; explain the layer that "
                f"was compiled instead."
            )
        hooked = next((h for h in HOOKS if getattr(conv, h)), None)
        if hooked:
            raise Unfusable(f"{name}: `{hooked[1:]}` may see or change the messages of edges.")

    def __getstate__(self) -> dict[str, Any]:
        return vars(Propagate(self.conv, self.graphs))


def _is_with_statistics(result: Any) -> bool:
    return isinstance(result, dict) and result.keys() == {RESULT, STATISTICS}


@torch._dynamo.assume_constant_result
def _named(propagate: Propagate, described: Any) -> str:
    """The name among `programs` of the kernel of a plan, by which torch's compiler reads it."""
    plan = stages_of(described)
    kernel = propagate._kernel(plan)
    name = f"program{list(propagate.kernels).index(plan)}"
    setattr(propagate.programs, name, kernel)
    return name


@torch._dynamo.assume_constant_result
def _assigned(propagate: Propagate) -> tuple[str, ...]:
    return assigned(propagate.conv)


def _plain_tensor(edge_index: torch.Tensor) -> torch.Tensor:
    """The indices without what a subclass of tensors adds to them."""
    if type(edge_index) is torch.Tensor:
        return edge_index
    return edge_index.as_subclass(torch.Tensor)
