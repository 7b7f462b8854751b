"""Native tensors: lazy, differentiable, without torch.

What a tensor is: `core`, its expression's nodes (`lazy`), its memory (`storage`, `arrays`), and its
methods (`methods`, `operators`), which are the `functions`. Calls of `MessagePassing`: `messages`.
Where memory is scarce: `memory`.

From operands to expressions: `build`, `scalars`, `dtypes`, `waiting`. From expressions to values:
`evaluate`, which asks `by_numpy`, `compiled` or `gpu`; `program` makes programs of expressions,
`planned` remembers what became of them, `recipe` how a value was computed. Expressions that are
built often are recorded: `application`, `record`. Writes: `inplace`, `writes`, `tracked`.
"""

from tiga.frontends.tensor import methods
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import Device

methods.install()

__all__ = ["Device", "Tensor"]
