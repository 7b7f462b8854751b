"""Which gradients a pass of autograd goes on with.

Forces ask for the gradient of an energy by positions alone, and training on forces then for that of
the weights: what nobody asked for is not computed, which is often the larger part.
"""

from typing import Any

import torch

from tiga.frontends.torch.unit import Trained

_will_execute = getattr(torch._C, "_will_engine_execute_node", None)


def asked(ctx: Any, trained: Trained) -> tuple[int, ...]:
    """The inputs whose gradients this pass goes on with, among those that require one.

    Of a leaf whose gradient is handed to the user, torch tells by an error, which takes longer than
    all the rest. So tensors that are no fields come first; if one of them was such a leaf, those
    after it are taken to be asked for too, and so it is with fields; and what nobody was told to go
    on with before the last is asked for. The answer depends on what is asked for alone.
    """
    wanted = trained.wanted
    nodes = [node for node, _ in getattr(ctx, "next_functions", ()) if node is not None]
    if _will_execute is None or len(nodes) < 2 or len(nodes) != len(wanted):
        return wanted
    found: list[int] = []
    handed = None
    for place, is_field in trained.ask_order:
        if handed is is_field or (not found and place == trained.ask_order[-1][0]):
            found.append(place)
            continue
        try:
            if _will_execute(nodes[place]):
                found.append(place)
        except RuntimeError:
            found.append(place)
            handed = is_field
    if len(found) == len(wanted):
        return wanted
    return tuple([wanted[place] for place in sorted(found)])
