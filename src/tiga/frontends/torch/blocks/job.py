"""One call that runs through torch in destination blocks: what its blocks read, send and make."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from tiga.frontends.message_passing import MessagePassing, PerEdge
from tiga.frontends.signature import taken
from tiga.frontends.torch.blocks.autocast import Autocast
from tiga.frontends.torch.blocks.fields import BlockFields, EdgeRange, RowBlock
from tiga.frontends.torch.blocks.parts import Programs, Reduction, finish, send, tensors_of
from tiga.frontends.torch.blocks.plan import Blocks, limited, planned
from tiga.frontends.torch.blocks.random_state import RandomState
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.relations import Graph
from tiga.runtime.scope import Scope, within

if TYPE_CHECKING:
    from tiga.frontends.torch.blocks.bounded import Bounded

NO_BLOCKS = Blocks((), {})


@dataclass(frozen=True)
class Job:
    """One call in blocks. `names` are the fields among the tensors, `others` the rest; `scope` are
    the budgets in force over a graph in a file, which threads of autograd do not see."""

    bounded: "Bounded"
    kernel: MessagePassing
    graph: Graph
    token: tuple[int, ...]
    names: list[tuple[str, str]]
    params: dict[str, Any]
    others: list[torch.Tensor]
    scope: Scope | None
    blocks: Blocks = NO_BLOCKS
    programs: Programs = field(default_factory=dict)
    thread: int = field(default_factory=get_ident)
    autocast: Autocast = field(default_factory=Autocast.now)

    @property
    def edge_params(self) -> Mapping[str, Any]:
        """The parameters that `edge` takes."""
        return taken(self.kernel, "edge", self.params)

    @property
    def device(self) -> torch.device:
        """Where blocks are computed."""
        return device_of(self.graph)

    def fields(self, values: Sequence[torch.Tensor]) -> BlockFields:
        """The fields of the call."""
        fields: dict[str, dict[str, Any]] = {"edge": {}}
        for (namespace, name), value in zip(self.names, values, strict=True):
            fields.setdefault(namespace, {})[name] = value
        if not self.graph.paged:
            return BlockFields(self.graph, fields)
        if on_gpu(self.device):
            from tiga.frontends.torch.blocks.device import DeviceBlockFields

            return DeviceBlockFields(self.graph, fields)
        from tiga.frontends.torch.blocks.paged import PagedBlockFields

        return PagedBlockFields(self.graph, fields)

    @contextmanager
    def running(self, fields: BlockFields, blocks: Blocks) -> Iterator[None]:
        """The body of a `with` goes through blocks: their memory is charged."""
        with (
            fields.holding(blocks.nbytes, "destination blocks through torch"),
            fields.reading(),
        ):
            yield

    @contextmanager
    def budgets(self) -> Iterator[None]:
        """The budgets of the call are in force for the body of a `with`, in whatever thread."""
        elsewhere = self.scope is not None and get_ident() != self.thread
        with within(self.scope) if elsewhere else nullcontext():
            yield

    def blocks_of_order(self, order: int, fields: BlockFields, drew: bool) -> Blocks:
        """Blocks in which derivatives of an order are made: smaller ones, but where the blocks
        drew random numbers, which are the same in the same blocks only.

        Raises:
            OutOfBudget: the edges of a row do not fit together.
        """
        assert self.bounded.sizes is not None
        sizes, reason = self.bounded.sizes, self.bounded.reason
        if drew:
            return limited(self.blocks.each, fields.limits(sizes.of_order(order)), reason, order)
        return planned(fields, sizes, reason, order)

    def send(self, fields: BlockFields, part: EdgeRange) -> tuple[Any, list[torch.Tensor]]:
        """What `edge` sends, and the tensors in it."""
        keeps = torch.is_grad_enabled()
        mode = nullcontext() if keeps else self.bounded.grad_mode()
        with self.autocast.again(), mode:
            sent = send(self.kernel, fields, part, self.edge_params)
        tensors = tensors_of(sent, part.last - part.first)
        return sent, tensors if keeps else [t.detach() for t in tensors]

    def messages(
        self, fields: BlockFields, block: RowBlock
    ) -> tuple[Any, list[torch.Tensor], list[RandomState]]:
        """What a block's edges send, part by part, and the random state before each part."""
        pieces, states = [], []
        sent: Any = None
        for part in block.parts():
            states.append(RandomState.now(fields.device))
            sent, tensors = self.send(fields, part)
            pieces.append(tensors)
        if len(pieces) == 1:
            return sent, pieces[0], states
        return sent, [torch.cat(p) for p in zip(*pieces, strict=True)], states

    def rows(self, fields: BlockFields, block: RowBlock, sent: Any, messages: Any) -> Any:
        """What the destinations of a block get."""
        tensors = self.bounded.discovery.tensors
        reduction = Reduction(
            self.kernel.reducer, tensors, fields, block, self.programs, self.bounded.programs
        )
        params = taken(self.kernel, "node", self.params)
        with self.autocast.again():
            rows = reduction.run(sent, messages)
            return finish(self.kernel, fields, block, rows, params)


def plain(leaf: Any) -> torch.Tensor:
    """The values of one result of a block, whether of its rows or of its edges."""
    return leaf.value if isinstance(leaf, PerEdge) else leaf
