"""What autograd calls, hidden from torch's compiler.

A compiled function that asks for gradients does so outside of its graph, with the compiler still
watching: it would trace the Python code of our gradients, which is none of its business.
"""

from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Any)

_eval_frame: Any = getattr(torch._C, "_dynamo", None) and torch._C._dynamo.eval_frame


def untraced(function: F) -> F:
    """The function, which torch's compiler neither traces nor follows into what it calls.

    As `torch.compiler.disable`, which would load the compiler, and costs nothing per call.
    """
    if hasattr(_eval_frame, "set_code_exec_strategy"):
        skip = _eval_frame._FrameAction.SKIP
        strategy = _eval_frame._FrameExecStrategy(skip, skip)
        _eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function
