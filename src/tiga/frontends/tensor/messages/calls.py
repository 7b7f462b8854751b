"""What a kernel knows of its calls on native tensors."""

import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tiga.frontends.message_passing import NATIVE_STATE
from tiga.frontends.tensor.messages.graph_call import Launch

if TYPE_CHECKING:
    from tiga.frontends.inspection import CompiledPart, Known

_ADVICE = "runs in destination blocks; rewrite the op, or set strict to make it an error"


@dataclass(eq=False)
class Calls:
    """The programs of a kernel instance's calls, oldest first, and why calls were not fused. Copies
    and pickles of the instance start afresh."""

    owner: Any
    programs: dict[Launch, None] = field(default_factory=dict)
    refusals: dict[str, None] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0

    def __reduce__(self) -> Any:
        return _none, ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def note(self, launch: Launch) -> None:
        """A call has this program."""
        if launch in self.programs:
            self.hits += 1
            return
        self.programs[launch] = None
        self.misses += 1

    def refuse(self, reason: Exception) -> None:
        """A call was not fused."""
        self.refusals[str(reason)] = None

    def known(self) -> "Known":
        """The programs with what ran of them; of a call that was not made, the program."""
        from tiga.frontends.inspection import Captured, Known

        programs = [Captured([reason]) for reason in list(self.refusals)]
        for launch in list(self.programs):
            found: dict[Launch, CompiledPart] = {}
            _collect(launch, "forward", found)
            ran = [p for one, p in found.items() if one.ran_on_cpu or one.ran_on_gpu]
            programs.append(Captured(parts=ran or [found[launch]]))
        return Known(self.hits, self.misses, programs, _ADVICE)


def _none() -> None:
    return None


def calls_of(kernel: Any) -> Calls:
    """The calls of this very instance."""
    calls: Calls | None = vars(kernel).get(NATIVE_STATE)
    if calls is None or calls.owner() is not kernel:
        calls = vars(kernel)[NATIVE_STATE] = Calls(weakref.ref(kernel))
    return calls


def _collect(launch: Launch, what: str, parts: dict[Launch, "CompiledPart"]) -> None:
    """A program and its derivatives, each once: derivatives of a gradient may be the program."""
    from tiga.frontends.inspection import CompiledPart

    if launch in parts:
        return
    cpu, gpu = (partial(getattr, launch, name) for name in ("compiled", "on_gpus"))
    parts[launch] = CompiledPart(what, launch, launch.ran_on_gpu, cpu, gpu, launch.gpu_pages)
    for (kind, _), derived in list(launch.derived.items()):
        after = kind.startswith("saving")
        _collect(derived, f"{what}, {kind}" if after else f"{kind}: {what}", parts)
