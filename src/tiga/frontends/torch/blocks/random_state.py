"""The state of the generators that code draws random numbers from, to draw the same again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class RandomState:
    """What torch's default generators draw next: that of the CPU, and that of a GPU, if code runs
    on one."""

    device: torch.device
    states: tuple[torch.Tensor, ...]

    @staticmethod
    def now(device: torch.device) -> "RandomState":
        """The state as it is, for code on a device."""
        states = [torch.get_rng_state()]
        if device.type == "cuda":
            states.append(torch.cuda.get_rng_state(device))
        return RandomState(device, tuple(states))

    def restore(self) -> None:
        """Draw from here on again."""
        torch.set_rng_state(self.states[0])
        for state in self.states[1:]:
            torch.cuda.set_rng_state(state, self.device)

    def is_now(self) -> bool:
        """Whether nothing was drawn since."""
        now = RandomState.now(self.device)
        return all(map(torch.equal, self.states, now.states))

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Draw from here on for the body of a `with`; after it, as if nothing was drawn."""
        now = RandomState.now(self.device)
        self.restore()
        try:
            yield
        finally:
            now.restore()
