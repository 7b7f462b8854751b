"""What torch's autograd knows of a value, which one that stands for a value does not have.

A program serves calls with and without gradients, and derivatives are taken of the program: a trace
sees neither whether a field has gradients, nor hooks, nor a backward pass that a user wrote.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import Function

from tiga.errors import InvalidValue, NeedsAutograd
from tiga.frontends.torch.capture.tracer import Recorder, Traced, tensors_in
from tiga.frontends.torch.capture.where import asked_by_user, asking_file, line_of_frame

Handler = Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]
T = torch.Tensor

_APPLY = Function.apply.__func__.__code__
_HOOKS = torch.utils.hooks.__file__, torch.nn.modules.module.__file__
"""Where torch asks whether a module's backward hooks are to be called."""


def refuse_custom_backward() -> None:
    """Raise if a `torch.autograd.Function` is being applied: it has derivatives of its own.

    Its `forward` runs without gradients, so nobody has to ask while they are on.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    if frame is not None:
        name = frame.f_locals["cls"].__name__
        raise NeedsAutograd(f"`{name}` has a backward pass of its own ({line_of_frame(frame)})")


def _own_autograd(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    raise NeedsAutograd(f"{func.__name__} needs torch's own autograd ({recorder.where})")


def _refuse_history(what: str) -> Handler:
    """A handler for what tells of gradients; torch's own code is told that there are none."""

    def handle(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(args[0], Traced):
            return func(*args, **kwargs)
        if asking_file() in _HOOKS:
            raise NeedsAutograd(f"a module has backward hooks ({recorder.where})")
        if not asked_by_user():
            return func(*args, **kwargs)
        raise InvalidValue(
            f"{recorder.where}: `{what}` of a value in `edge` or `node` is read. One program "
            f"serves calls with and without gradients; pass what it is to depend on as a parameter "
            f"of the call, say `kernel(graph=..., training=True)`."
        )

    return handle


def _refuse_gradient(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    known = any(isinstance(t, Traced) or id(t) in recorder.tensors for t in tensors_in(args))
    if not known or not asked_by_user():
        return func(*args, **kwargs)
    raise InvalidValue(
        f"{recorder.where}: `.grad` is read, which comes and goes without the program being told. "
        f"Pass the gradient as a parameter of the call."
    )


def _refuse_hook(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    raise InvalidValue(
        f"{recorder.where}: `{func.__name__}` asks for a gradient within `edge` or `node`, which "
        f"no program keeps. Put hooks on fields, parameters or results of the call; a "
        f"torch.autograd.Function with a backward pass of its own may be used inside."
    )


HISTORY: dict[Any, Handler] = {
    T.requires_grad.__get__: _refuse_history("requires_grad"),
    T.is_leaf.__get__: _refuse_history("is_leaf"),
    T.grad_fn.__get__: _refuse_history("grad_fn"),
    T.grad.__get__: _refuse_gradient,
    **dict.fromkeys(
        (T.register_hook, T.register_post_accumulate_grad_hook, T.retain_grad), _refuse_hook
    ),
    **dict.fromkeys(
        (T.requires_grad_, T.backward, torch.autograd.grad, T.requires_grad.__set__), _own_autograd
    ),
}  # fmt: skip
