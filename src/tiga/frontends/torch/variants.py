"""The programs of a kernel: one for each signature of calls that has come, and for what it read."""

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from tiga.errors import Unfusable, bare
from tiga.frontends.message_passing import TORCH_STATE, MessagePassing
from tiga.frontends.torch.blocks.bounded import Bounded
from tiga.frontends.torch.capture.guards import Guards, Place, same
from tiga.frontends.torch.capture.parameters import ParamSource, form_of, leaves
from tiga.frontends.torch.capture.program import Captured, Request, capture, discover
from tiga.frontends.torch.devices import device_of, may_stage
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.fields import extents_of, refuse
from tiga.frontends.torch.index_ranges import Checked
from tiga.frontends.torch.repeat import Repeat, settings
from tiga.frontends.torch.unit import Unit, unit_of
from tiga.knobs import current
from tiga.relations import Graph

MOST_VARIANTS = 64
"""Programs that are kept for calls of one signature: objects among parameters may be new ones in
every call."""


@dataclass(eq=False)
class Variant:
    """One program of a kernel and what must hold for it to serve a call.

    `bounded` runs what no trace holds; `fallback` what a trace holds, but no kernel can run, or not
    with gradients.
    """

    guards: Guards
    params: Mapping[ParamSource, Any]
    captured: Captured | None = None
    unit: Unit | None = None
    bounded: Bounded | None = None
    fallback: Bounded | None = None

    def __post_init__(self) -> None:
        if self.captured is None:
            return
        sources = self.captured.sources
        nodes = self.captured.program.inputs
        self.tensors = [
            (source, torch_dtype(node.type.dtype), node.type.shape)
            for source, node in zip(sources, nodes, strict=True)
            if isinstance(source, Place) and node not in self.captured.numbers
        ]
        self.single = self.captured.result == 0
        outputs = self.captured.program.outputs
        self.on_edges = [i for i, n in enumerate(outputs) if n.type.on_edges]

    def fits(self, params: Mapping[str, Any]) -> bool:
        """Whether the program serves a call with these parameters now."""
        for source, expected in self.params.items():
            if not same(source.of(params), expected):
                return False
        return self.guards.hold() and self._tensors_fit()

    def refuse(
        self, reason: Unfusable, kernel: MessagePassing, params: Mapping[str, Any]
    ) -> Bounded:
        """What runs calls that no kernel can, for the first such reason."""
        if self.fallback is None:
            self.fallback = Bounded(bare(reason), discover(kernel, params))
        return self.fallback

    def _tensors_fit(self) -> bool:
        if self.captured is None:
            return True
        for source, dtype, shape in self.tensors:
            value = source.get()
            if value.dtype is not dtype or value.shape != shape:
                return False
        return True


@dataclass(eq=False)
class State:
    """The programs of one kernel instance. Copies and pickles of the instance start afresh."""

    owner: Any
    variants: dict[Any, list[Variant]] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    checked: Checked = field(default_factory=Checked)
    last: Repeat | None = None

    def __reduce__(self) -> Any:
        return _no_state, ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def serving(self, key: Any, params: Mapping[str, Any]) -> Variant | None:
        """A variant that serves a call now, if there is one."""
        for variant in self.variants.get(key, ()):
            if variant.fits(params):
                self.hits += 1
                return variant
        return None

    def all(self) -> list[Variant]:
        """Every variant, oldest first."""
        return [v for found in list(self.variants.values()) for v in found]


def _no_state() -> None:
    return None


def state_of(kernel: MessagePassing) -> State:
    """The state of this very instance, made at its first use."""
    state = vars(kernel).get(TORCH_STATE)
    if state is None or state.owner() is not kernel:
        state = State(weakref.ref(kernel))
        vars(kernel)[TORCH_STATE] = state
    return state


def signature(
    graph: Graph, fields: Mapping[str, Mapping[str, torch.Tensor]], params: Mapping[str, Any]
) -> tuple[Any, ...]:
    """What a program is specialised to: names, dtypes and widths of fields, kinds of parameters."""
    extents, device = extents_of(graph), device_of(graph)
    parts: list[Any] = []
    try:
        for namespace, values in fields.items():
            extent = extents[namespace]
            parts.append(namespace)
            for name, tensor in values.items():
                shape = tensor.shape
                strided = tensor.layout is torch.strided
                lies = tensor.device == device or may_stage(graph, tensor.device)
                if shape[0] != extent or not lies or not strided:
                    refuse(graph, fields, extents)
                parts += (name, tensor.dtype, shape[1:])
    except (AttributeError, IndexError, TypeError, RuntimeError):  # nested ones have no shape
        refuse(graph, fields, extents)
    return _finish_key(parts, params)


def key_of(fields: Mapping[str, Mapping[str, torch.Tensor]], params: Mapping[str, Any]) -> Any:
    """The signature of a call whose fields are known to be right."""
    parts: list[Any] = []
    for namespace, values in fields.items():
        parts.append(namespace)
        for name, tensor in values.items():
            parts += (name, tensor.dtype, tensor.shape[1:])
    return _finish_key(parts, params)


def _finish_key(parts: list[Any], params: Mapping[str, Any]) -> tuple[Any, ...]:
    for name, value in params.items():
        parts += (name, form_of(value))
    return (*parts, *settings())


def variant_of(
    kernel: MessagePassing, graph: Graph, fields: Any, params: Mapping[str, Any]
) -> Variant:
    """The variant that serves a call, captured if there is none."""
    key = signature(graph, fields, params)
    return find_variant(state_of(kernel), kernel, key, fields, params)


def find_variant(
    state: State, kernel: MessagePassing, key: Any, fields: Any, params: Mapping[str, Any]
) -> Variant:
    """The same, of a call with this signature."""
    found = state.serving(key, params)
    if found is not None:
        return found
    with state.lock:
        found = state.serving(key, params)
        if found is not None:
            return found
        state.misses += 1
        variant = _make(Request(kernel, fields, params))
        state.variants[key] = [variant, *state.variants.get(key, ())][:MOST_VARIANTS]
    return variant


def _make(request: Request) -> Variant:
    try:
        # The trace of a call is the same under every transform.
        with temporarily_clear_interpreter_stack():
            captured = capture(request)
    except Unfusable as reason:
        if request.kernel.strict or current().strict:
            raise refusal(reason) from None
        return _make_bounded(request, bare(reason))
    return Variant(captured.guards, captured.params, captured, unit_of(captured.program))


def _make_bounded(request: Request, reason: Unfusable) -> Variant:
    """torch reads everything itself at each call, so only the reason can become outdated."""
    discovery = discover(request.kernel, request.params)
    values = {s: v for s, v in leaves(request.params) if not isinstance(v, torch.Tensor)}
    return Variant(discovery.guards, values, bounded=Bounded(reason, discovery))


def refusal(reason: Unfusable) -> Unfusable:
    """What refuses a call that must run fused."""
    return Unfusable(
        f"{reason}. Write it with ops that fuse, or leave out `strict` (or TIGA_STRICT) to run it "
        f"through torch in blocks of destinations."
    )
