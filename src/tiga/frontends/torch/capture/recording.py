"""A stand-in for `self` while `edge` is traced: it notes which attributes are read."""

import random
from collections.abc import Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tiga.frontends.torch.capture.opaque import state_of

DRAWS_UNSEEN = (
    "`edge` or `node` draws numbers from Python's or numpy's generator. They run once per program, "
    "so that every call would get the same ones: draw with torch, say torch.rand_like, or pass "
    "what was drawn as a parameter of the call."
)

_READS = "_tiga_reads"
_classes: "WeakKeyDictionary[type, type]" = WeakKeyDictionary()


def _recording_class(cls: type) -> type:
    """A subclass that notes reads, and otherwise behaves and is called like its parent."""
    found = _classes.get(cls)
    if found is not None:
        return found

    def __getattribute__(self: Any, name: str) -> Any:  # noqa: N807
        if not name.startswith("__"):
            object.__getattribute__(self, "__dict__")[_READS].add(name)
        return cls.__getattribute__(self, name)  # type: ignore[call-arg]

    namespace = {
        "__getattribute__": __getattribute__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    made = type.__new__(type(cls), cls.__name__, (cls,), namespace)
    _classes[cls] = made
    return made


def recording_clone(kernel: Any) -> tuple[Any, set[str]]:
    """A shallow copy of a kernel, and the set to which it adds the attributes read from it."""
    clone: Any = object.__new__(_recording_class(type(kernel)))
    reads: set[str] = set()
    state = object.__getattribute__(clone, "__dict__")
    state.update(vars(kernel))
    state[_READS] = reads
    return clone, reads


def random_states(names: Set[str], generators: Sequence[Any]) -> tuple[Any, ...]:
    """The states of generators that no tensor tells of: of these, and if code that mentions these
    names may draw from them, of those that Python and numpy share among all."""
    states = tuple(map(state_of, generators))
    if "random" not in names:
        return states
    return *states, state_of(random._inst), state_of(np.random.mtrand._rand)
