"""What torch's autocast says where a call is made, to run code in the same way later."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

KINDS = "cpu", "cuda"


@dataclass(frozen=True)
class Autocast:
    """The type that products take on each kind of device, None where they keep theirs."""

    dtypes: tuple[torch.dtype | None, ...]

    @staticmethod
    def now() -> "Autocast":
        """What is in force."""
        return Autocast(
            tuple(
                torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
                for kind in KINDS
            )
        )

    @contextmanager
    def again(self) -> Iterator[None]:
        """In force for the body of a `with`. Casts of one body are not kept for others, which may
        run with gradients where it runs without."""
        with ExitStack() as stack:
            for kind, dtype, now in zip(KINDS, self.dtypes, Autocast.now().dtypes, strict=True):
                if dtype is not None:
                    stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
                elif now is not None:
                    stack.enter_context(torch.autocast(kind, enabled=False))
            yield
