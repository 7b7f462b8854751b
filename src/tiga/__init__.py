"""Tiga compiles message passing: say what one edge sends, get fused kernels and their gradients.

Example:
    >>> import torch, tiga as tg
    >>> class Sum(tg.MessagePassing):
    ...     reducer = tg.sum()
    ...     def edge(self, src, dst, edge):
    ...         return edge.w * src.x
    >>> graph = tg.Graph.from_coo([0, 1], [1, 1], num_dst=2)
    >>> x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    >>> Sum()(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    tensor([ 0., 11.])
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tiga._names import FUNCTIONS, SERVED

if TYPE_CHECKING:
    from tiga import errors as errors
    from tiga import knobs as knobs
    from tiga.frontends.message_passing import MessagePassing as MessagePassing
    from tiga.frontends.message_passing import mask as mask
    from tiga.frontends.radius import radius_graph as radius_graph
    from tiga.functions import logsumexp as logsumexp
    from tiga.functions import max as max
    from tiga.functions import mean as mean
    from tiga.functions import min as min
    from tiga.functions import prod as prod
    from tiga.functions import softmax as softmax
    from tiga.functions import std as std
    from tiga.functions import sum as sum
    from tiga.functions import var as var
    from tiga.reducers import CustomReducer as Reducer
    from tiga.reducers import Each as each
    from tiga.reducers import EdgeSoftmax as edge_softmax
    from tiga.reducers import Multi as multi
    from tiga.reducers import Softmax as online_softmax
    from tiga.relations import Graph as Graph
    from tiga.relations import GraphBatch as GraphBatch

try:
    __version__ = version("tiga-lang")
except PackageNotFoundError:  # the source tree is on the path, but nothing was installed
    __version__ = "0+unknown"

# Where each public name lives. Names are looked up on first use, so that `import tiga` loads
# neither torch, nor triton, nor the MLIR bindings.
_HOME = {
    "Graph": ("tiga.relations", "Graph"),
    "GraphBatch": ("tiga.relations", "GraphBatch"),
    "MessagePassing": ("tiga.frontends.message_passing", "MessagePassing"),
    "mask": ("tiga.frontends.message_passing", "mask"),
    "radius_graph": ("tiga.frontends.radius", "radius_graph"),
    "Reducer": ("tiga.reducers", "CustomReducer"),
    "multi": ("tiga.reducers", "Multi"),
    "each": ("tiga.reducers", "Each"),
    "edge_softmax": ("tiga.reducers", "EdgeSoftmax"),
    "online_softmax": ("tiga.reducers", "Softmax"),
    "bool": ("tiga.types", "bool_"),
    **{name: (module, name) for module, names in FUNCTIONS.items() for name in names},
}
_MODULES = ("autograd", "compiler", "errors", "knobs", "runtime")
__array_api_version__ = "2024.12"

__all__ = ["__array_api_version__", "__version__", *_MODULES, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, attribute = _HOME[name]
        # A package is complete, with the methods of its tensors, when another thread has left it.
        for package in accumulate(module.split(".")[:-1], "{}.{}".format):
            import_module(package)
        value = getattr(import_module(module), attribute)
        if name in SERVED:
            value = import_module("tiga.served").serving(name, value)
    elif name in _MODULES:
        value = import_module(f"tiga.{name}")
    else:
        # With both, Python asks whether a name that is much like it was meant.
        text = f"module 'tiga' has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
