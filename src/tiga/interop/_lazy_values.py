"""Values of edges that a walk computes without keeping them, for code that may look at them."""

import dis
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

from tiga.errors import Unfusable


class LazyValues:
    """Values of edges that a walk computes without keeping them: computed when looked at."""

    inlined = False
    """Whether a walk has them within."""

    def __init__(self, conv: Any, compute: Callable[[], torch.Tensor]) -> None:
        self.made: torch.Tensor | None = None
        self.conv = conv
        self._compute = compute

    def tensor(self) -> torch.Tensor:
        """The values of every edge, as the layer itself computes them."""
        if self.made is None:
            compiling = torch.compiler.is_compiling()
            before = torch.get_rng_state() if self.inlined and not compiling else None
            self.made = self._compute()
            drawn = before is not None and not torch.equal(before, torch.get_rng_state())
            if drawn or (compiling and self.inlined and self._may_draw()):
                raise Unfusable(
                    "the values of edges that are asked for were drawn at random within a walk, "
                    "which keeps none; call the layer's .eval() first."
                )
        return self.made

    def _may_draw(self) -> bool:
        """Whether the layer drops values, as far as its settings tell."""
        return bool(self.conv.training and getattr(self.conv, "dropout", 0.0))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(made, args), **{k: made(v) for k, v in (kwargs or {}).items()})


class EdgeUpdate(LazyValues):
    """What `edge_updater` returned: computed within the walk that reads it, or when looked at."""

    def __init__(self, conv: Any, edge_index: Any, size: Any, given: Mapping[str, Any]) -> None:
        super().__init__(
            conv, lambda: type(conv).edge_updater(conv, edge_index, size=size, **given)
        )
        self.given = given


class Kept(LazyValues):
    """What the functions of a walk assign to an attribute of the layer."""

    inlined = True

    def __init__(
        self, conv: Any, name: str, edge_index: Any, size: Any, given: Mapping[str, Any]
    ) -> None:
        def compute() -> torch.Tensor:
            before = getattr(conv, name)
            arguments = {key: made(value) for key, value in given.items()}
            type(conv).propagate(conv, edge_index, size=size, **arguments)
            found: torch.Tensor = getattr(conv, name)
            setattr(conv, name, before)
            return found

        super().__init__(conv, compute)


def _operator(name: str) -> Callable[..., Any]:
    def method(self: LazyValues, *operands: Any) -> Any:
        return getattr(self.tensor(), name)(*map(made, operands))

    return method


# Python looks operators up on the class, past `__getattr__`.
for _name in (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "neg", "matmul",
    "getitem", "len", "iter", "lt", "le", "gt", "ge",
):  # fmt: skip
    setattr(LazyValues, f"__{_name}__", _operator(f"__{_name}__"))


def made(value: Any) -> Any:
    """Results without deferred ones."""
    if isinstance(value, LazyValues):
        return value.tensor()
    if type(value) in (tuple, list):
        return type(value)(map(made, value))
    return value


def assigned(conv: Any) -> tuple[str, ...]:
    """The attributes of a layer that its functions per edge assign, such as attention weights."""
    functions = (conv.edge_update, conv.message, conv.aggregate)
    names = {name for function in functions for name in _stored(function.__code__)}
    return tuple(sorted(names & vars(conv).keys()))


@lru_cache(maxsize=256)
def _stored(code: CodeType) -> tuple[str, ...]:
    return tuple(i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR")
