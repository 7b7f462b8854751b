"""The fields of a call: checked as they are given, and as `edge` and `node` see them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.creation import from_numpy
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import standing_for
from tiga.frontends.views import View
from tiga.relations.paged import PagedField
from tiga.types import GLOBAL, DType, Shape, Type

Fields = Mapping[tuple[str, str], Tensor]
"""Fields by namespace and name."""

EXTENTS = {"src": "num_src", "dst": "num_dst", "edge": "num_edges", "ndata": "num_dst"}
"""Which extent of a graph the fields of a namespace have."""


class Spec(NamedTuple):
    """What programs depend on of a field."""

    namespace: str
    name: str
    dtype: str
    shape: Shape
    grad: bool


def fields_of(topology: Any, given: Sequence[Any]) -> tuple[dict[Any, Tensor], tuple[Any, ...]]:
    """The fields of a call by namespace and name, and their `Spec`s, as plain tuples.

    Raises:
        InvalidType: something that is no tensor of real numbers, or no mapping of them.
        InvalidValue: another leading extent than the graph's.
    """
    src, dst, _, ndata = given
    if ndata is not None and (src or dst):
        raise InvalidType(f"ndata= stands for src= and dst=; give one or the other ({here()}).")
    fields: dict[Any, Tensor] = {}
    specs: list[Any] = []
    for namespace, values in zip(EXTENTS, given, strict=True):
        if values is None:
            continue
        if values.__class__ is not dict and not isinstance(values, Mapping):
            raise InvalidType(
                f"`{namespace}` expected a mapping from names to tensors, got "
                f"{type(values).__name__} ({here()})."
            )
        extent = getattr(topology, EXTENTS[namespace])
        for name, value in values.items():
            if isinstance(value, PagedField):
                value = from_numpy(value.numpy())  # mapped from its file
            kind = _type_of(namespace, name, value, extent)
            fields[namespace, name] = value
            specs.append((namespace, name, kind.dtype.name, kind.shape[1:], value._grad))
    return fields, tuple(specs)


def _type_of(namespace: str, name: str, value: Any, extent: int) -> Type:
    """The type of a field, checked."""
    if not isinstance(value, Tensor):
        raise InvalidType(
            f"field `{namespace}.{name}` expected a native tensor, as others of the call are, got "
            f"{type(value).__module__}.{type(value).__name__} ({here()}). Convert it with "
            f"tg.from_torch or tg.asarray, or pass torch tensors alone."
        )
    kind = value._node.type
    if not kind.shape or kind.shape[0] != extent:
        raise InvalidValue(
            f"field `{namespace}.{name}` expected leading extent {extent}, got shape "
            f"{value.shape} ({here()})."
        )
    if kind.dtype.kind == "c":
        raise InvalidType(f"field `{namespace}.{name}` is complex, which no walk takes ({here()}).")
    return kind


def stand_in(dtype: DType, shape: Shape, extent: int, grad: bool) -> Tensor:
    """A tensor that stands for the values of all edges or nodes."""
    return standing_for(Type(dtype, (extent, *shape), GLOBAL), "edge or node", grad)


class FieldView(View):
    """The fields of one end, or of the edges, as tensors that stand for all rows."""

    def __init__(self, label: str, values: Mapping[str, Tensor]) -> None:
        super().__init__(label, values, here)
        # Attributes of the view itself where a name is free: they are read without a call.
        free = {name: value for name, value in values.items() if not hasattr(View, name)}
        self.__dict__.update(free)
