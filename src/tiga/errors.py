"""Every exception that Tiga raises on purpose; each also is the Python exception a caller expects.

A message says what was expected, what was got, where the user's line is, and what to do.
"""

from typing import TypeVar

Error = TypeVar("Error", bound=Exception)


def bare(error: Error) -> Error:
    """The same error without the calls that it went through: kept, it would keep alive all that
    these know, what the user's code has at hand among it.

    Example:
        >>> bare(InvalidValue("no"))
        InvalidValue('no')
    """
    return type(error)(*error.args)


class TigaError(Exception):
    """Base of all errors that Tiga raises on purpose."""


class InvalidValue(TigaError, ValueError):
    """A value, shape or option is not one that the call accepts."""


class InvalidType(TigaError, TypeError):
    """An argument, dtype or device is of the wrong kind."""


class InvalidIndex(TigaError, IndexError):
    """An edge names a node that does not exist: position, value and range are in the message."""


class StaleTopology(TigaError, RuntimeError):
    """A graph's index arrays changed between a forward call and its backward."""


class Unfusable(TigaError, NotImplementedError):
    """A program holds something the compiler cannot fuse; the bounded path may still run it."""


class NeedsAutograd(Unfusable):
    """A program holds what only torch's own autograd computes, such as a backward pass of a
    user's."""


class UnsupportedByBackend(TigaError, NotImplementedError):
    """The chosen backend cannot run this program at all."""


class OutOfBudget(TigaError, MemoryError):
    """An allocation would exceed a memory budget: the message has tier, need, live and budget."""


class InvalidFile(TigaError, ValueError):
    """A file is not what its format says: truncated, foreign, too new or altered."""


class InvalidState(TigaError, RuntimeError):
    """An object cannot do this now: it is closed, in use or already moved."""


class MissingAttribute(TigaError, AttributeError):
    """An object has no such attribute; the message says where what it stands for is."""


class UnknownName(TigaError, KeyError):
    """Nothing is known under this name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
