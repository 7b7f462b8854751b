"""Python's collector of cycles, held back while everything that is made is there to stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection in the body of a `with`, and none of what it made right after.

    Loading the compiler makes some thousand classes. Collections find nothing among them, and take
    a fifth of the time of the first compiled call. So what is alive counts as old: it is looked at
    when everything is.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _age()
            gc.enable()


def _age() -> None:
    """Move everything that is alive to the oldest generation."""
    if not gc.get_freeze_count():  # else the objects that somebody froze would thaw with ours
        gc.freeze()
        gc.unfreeze()
