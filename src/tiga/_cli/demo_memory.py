"""Extra peak memory of one training step of the demonstration, in a process of its own."""

import sys

from tiga._cli import digits
from tiga._cli.measure import rise


def main(way: str, copies: str) -> None:
    """Print the bytes that one step needs at its peak, beyond what is there before it."""
    data = digits.load()
    # The first call compiles; on the small graph it leaves no large blocks behind.
    small = digits.training_step(data, *digits.WAYS[way](data))
    small()
    large = data.repeated(int(copies))
    step = digits.training_step(large, *digits.WAYS[way](large))
    step()
    print(rise(step))


if __name__ == "__main__":
    main(*sys.argv[1:])
