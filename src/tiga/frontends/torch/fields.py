"""Check what a call passes before anything runs."""

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from tiga.errors import InvalidType, InvalidValue, UnsupportedByBackend
from tiga.frontends.message_passing import Fields, FieldSets
from tiga.frontends.torch.devices import device_of, may_stage
from tiga.frontends.torch.dtypes import dtype_of
from tiga.relations import Graph

EXTENT_NAMES = {"src": "num_src", "dst": "num_dst", "edge": "num_edges", "ndata": "num_src"}


def namespaces(graph: Any, given: FieldSets) -> dict[str, Fields]:
    """The field mappings of a call, by namespace.

    Raises:
        InvalidType: no graph; a namespace that is no mapping; `ndata` beside `src` or `dst`.
        InvalidValue: `ndata` on a graph whose ends are two node sets.
    """
    if not isinstance(graph, Graph):
        raise InvalidType(
            f"`graph` must be a tiga Graph; got {type(graph).__name__}. Make one, say with "
            f"`tg.Graph.from_edge_index(edge_index, num_nodes=n)`, and pass it as `graph=`."
        )
    if graph.paged:
        from tiga.frontends.torch.paged import attached

        given = tuple(map(attached, given))
    src, dst, edge, ndata = given
    if ndata is None:
        named = {"src": src, "dst": dst, "edge": edge}
        return {name: {} if values is None else values for name, values in named.items()}
    beside = [name for name, values in (("src", src), ("dst", dst)) if values is not None]
    if beside and any(len(v) for v in (src, dst) if v is not None):
        raise InvalidType(
            "pass `ndata` for both ends of a graph, or `src` and `dst`; `ndata` came with "
            f"`{beside[0]}`."
        )
    counts = graph if graph.paged else graph.snapshot()
    if counts.num_src != counts.num_dst:
        raise InvalidValue(
            f"`ndata` needs one node set, but the graph has {graph.num_src} sources and "
            f"{graph.num_dst} destinations: pass `src` and `dst`."
        )
    return {"ndata": ndata, "edge": {} if edge is None else edge}


def extents_of(graph: Graph) -> dict[str, int]:
    """The leading extent that each namespace must have."""
    counts = graph if graph.paged else graph.snapshot()
    return {
        "src": counts.num_src, "dst": counts.num_dst, "edge": counts.num_edges,
        "ndata": counts.num_src,
    }  # fmt: skip


def refuse(graph: Graph, fields: Mapping[str, Any], extents: Mapping[str, int]) -> NoReturn:
    """Raise for the first field that is wrong; there is one."""
    for namespace, values in fields.items():
        if not isinstance(values, Mapping):
            raise InvalidType(
                f"`{namespace}` must be a mapping from names to tensors; got "
                f"{type(values).__name__}."
            )
        for name, value in values.items():
            _check(f"{namespace}.{name}", value, namespace, extents[namespace])
            if not may_stage(graph, value.device):
                _check_device(f"{namespace}.{name}", value, device_of(graph))
    raise AssertionError("every field is right")


def _check(label: str, value: Any, namespace: str, extent: int) -> None:
    if not isinstance(value, torch.Tensor):
        raise InvalidType(
            f"field `{label}` must be a torch.Tensor; got {type(value).__name__}. Convert it with "
            f"torch.as_tensor."
        )
    if value.is_nested or value.layout is not torch.strided:
        got = "a nested one" if value.is_nested else f"layout {value.layout}"
        raise InvalidType(f"field `{label}` must be a dense tensor; got {got}.")
    dtype_of(value.dtype, f"field `{label}`")
    if not value.dim() or value.shape[0] != extent:
        raise InvalidValue(
            f"field `{label}` has shape {list(value.shape)}; its first axis must be "
            f"graph.{EXTENT_NAMES[namespace]} = {extent}."
        )


def _check_device(label: str, value: torch.Tensor, device: torch.device) -> None:
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedByBackend(
            f"the graph is on {device}; kernels run on CPUs and NVIDIA GPUs: build it from index "
            f"tensors there."
        )
    if value.device != device:
        raise UnsupportedByBackend(
            f"field `{label}` is on {value.device}, but the graph is on {device}: pass "
            f"`{label}.to({str(device)!r})`, or build the graph from index tensors on "
            f"{value.device}."
        )
