"""What a torch module holds, each with its place: parameters, buffers, flags, hooks, submodules."""

from functools import partial
from typing import Any

import torch

from tiga.frontends.torch.capture.guards import MISSING, AttributeSlot, Slot, items_of
from tiga.frontends.torch.capture.namespaces import TABLES

# Parts of a module's dict that have no say in its forward pass.
_IGNORED = frozenset(
    [
        "_non_persistent_buffers_set", "_is_full_backward_hook", "_state_dict_hooks",
        "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
        "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
    ]
)  # fmt: skip

_HOOKS_OF_ALL = (
    torch.nn.modules.module._global_forward_pre_hooks, torch.nn.modules.module._global_forward_hooks
)  # fmt: skip


def visit_module(
    discovery: Any, module: torch.nn.Module, label: str, operand: bool = False
) -> None:
    """The whole state of a module: parameters, buffers, flags, hooks, submodules."""
    if not discovery.first_time(module):
        return
    if isinstance(module, torch.jit.ScriptModule):
        _scripted(discovery, module, label)
        return
    discovery.guards.attributes.append((module, "__class__", type(module)))
    for hooks in _HOOKS_OF_ALL:
        discovery.value(hooks, "torch.nn.Module")
    discovery.value(type(module).forward, f"{label}.forward")
    state = vars(module)
    if "forward" not in state:
        discovery.guards.items.append((state, "forward", MISSING))
    for name, value in state.items():
        if name in TABLES:
            _table(discovery, value, label)
        elif name not in _IGNORED and not name.startswith("_tiga"):
            _state(discovery, state, name, value, f"{label}.{name}")
    discovery.pending.append((module, label))


def _scripted(discovery: Any, module: torch.jit.ScriptModule, label: str) -> None:
    """A module that runs outside of Python: its tensors, which nothing else leads to."""
    for path, inner in module.named_modules():
        discovery.guards.fact(partial(getattr, inner, "training"))
        tensors = *inner.named_parameters(recurse=False), *inner.named_buffers(recurse=False)
        for name, value in tensors:
            place = ".".join(filter(None, [label, path, name]))
            discovery.tensor(AttributeSlot(inner, name), value, place)


def _state(discovery: Any, state: dict[str, Any], name: str, value: Any, label: str) -> None:
    """One entry of a module's own dict; most are hook tables, and empty."""
    if name.startswith("_") and isinstance(value, dict) and not value:
        discovery.guards.empty.append(value)
    else:
        discovery.slot(Slot(state, name), label, False)


def _table(discovery: Any, table: dict[str, Any], label: str) -> None:
    """Parameters, buffers or submodules, whichever names there are."""
    if not table:
        discovery.guards.empty.append(table)
        return
    discovery.guards.sequences.append((table, items_of(table)))
    for name, value in table.items():
        place = f"{label}.{name}"
        if isinstance(value, torch.Tensor):
            discovery.tensor(Slot(table, name), value, place)
        elif value is not None:
            discovery.value(value, place)
