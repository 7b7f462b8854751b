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

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiga import errors as errors
    from tiga import knobs as knobs
    from tiga.frontends.message_passing import MessagePassing as MessagePassing
    from tiga.frontends.message_passing import mask as mask
    from tiga.reducers import LogSumExp as logsumexp
    from tiga.reducers import Max as max
    from tiga.reducers import Mean as mean
    from tiga.reducers import Min as min
    from tiga.reducers import Prod as prod
    from tiga.reducers import Reducer as Reducer
    from tiga.reducers import Softmax as softmax
    from tiga.reducers import Std as std
    from tiga.reducers import Sum as sum
    from tiga.reducers import Var as var
    from tiga.relations import Graph as Graph

try:
    __version__ = version("tiga-lang")
except PackageNotFoundError:  # the source tree is on the path, but nothing was installed
    __version__ = "0+unknown"

# Where each public name lives. Names are looked up on first use, so that `import tiga` loads
# neither torch, nor triton, nor the MLIR bindings.
_HOME = {
    "Graph": ("tiga.relations", "Graph"),
    "MessagePassing": ("tiga.frontends.message_passing", "MessagePassing"),
    "mask": ("tiga.frontends.message_passing", "mask"),
    "Reducer": ("tiga.reducers", "Reducer"),
    "sum": ("tiga.reducers", "Sum"),
    "mean": ("tiga.reducers", "Mean"),
    "max": ("tiga.reducers", "Max"),
    "min": ("tiga.reducers", "Min"),
    "prod": ("tiga.reducers", "Prod"),
    "std": ("tiga.reducers", "Std"),
    "var": ("tiga.reducers", "Var"),
    "logsumexp": ("tiga.reducers", "LogSumExp"),
    "softmax": ("tiga.reducers", "Softmax"),
}
_MODULES = ("errors", "knobs")

__all__ = ["__version__", *_MODULES, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, attribute = _HOME[name]
        value = getattr(import_module(module), attribute)
    elif name in _MODULES:
        value = import_module(f"tiga.{name}")
    else:
        raise AttributeError(f"module 'tiga' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
