"""The command line: `python -m tiga` (what is installed here) and `python -m tiga demo`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "doctor": "say what Tiga finds on this machine (the default)",
    "demo": "train a small graph network, then compare it with torch",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tiga", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, meaning in COMMANDS.items():
        module = import_module(f"tiga._cli.{name}")
        module.add_arguments(commands.add_parser(name, help=meaning, description=meaning))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given or ["doctor"])
    status: int = import_module(f"tiga._cli.{options.command}").run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
