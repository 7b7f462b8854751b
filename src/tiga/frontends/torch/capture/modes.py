"""The two modes in which torch tells a recorder what it is asked to do."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tiga.frontends.torch.capture.history import refuse_custom_backward
from tiga.frontends.torch.capture.tracer import Recorder
from tiga.frontends.torch.capture.where import user_line


class DispatchMode(TorchDispatchMode):
    """Hands ATen calls to a recorder."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping would import torch's whole compiler at the first call, a second of start-up.
        return False

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.dispatch(func, args, kwargs or {})


class FunctionMode(TorchFunctionMode):
    """Hands calls of torch's Python functions to `intercept`."""

    def __init__(self, recorder: Recorder, intercept: Callable[..., Any]) -> None:
        super().__init__()
        self.recorder = recorder
        self.intercept = intercept

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder = self.recorder
        if not torch.is_grad_enabled():
            refuse_custom_backward()
        recorder.where = user_line()
        recorder.function = func
        recorder.require_own((args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return self.intercept(recorder, func, args, kwargs or {})
