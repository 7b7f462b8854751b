"""Python's collector of cycles, held back while everything that is made is there to stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection in the body of a `with`.

    Loading the compiler makes some thousand classes. Collections meanwhile find nothing, and take
    a fifth of the time of the first compiled call.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
