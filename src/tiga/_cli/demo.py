"""Trains a two-layer graph network on handwritten digits, then compares the step with torch."""

import argparse
import importlib.util
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

from tiga._cli.measure import can_read_memory, interleave

if TYPE_CHECKING:
    from rich.console import Console

    from tiga._cli.digits import Digits

NEEDS = {"torch": "torch", "sklearn": "scikit-learn", "rich": "rich"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `python -m tiga demo`."""
    parser.add_argument("--epochs", type=int, default=150, help="training steps (default 150)")
    parser.add_argument(
        "--copies", type=int, default=32, help="copies of the graph in the comparison (default 32)"
    )
    parser.add_argument("--no-compare", action="store_true", help="train and test only")


def run(options: argparse.Namespace) -> int:
    """Train, test, compare and explain; the status is 1 when a package is missing."""
    missing = [name for module, name in NEEDS.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"the demo needs {', '.join(missing)}; run  pip install 'tiga-lang[demo]'")
        return 1
    from rich.console import Console

    from tiga._cli import digits

    console = Console(highlight=False)
    data = digits.load()
    console.print(
        f"[bold]Handwritten digits[/]: {len(data.x)} images, {len(data.source)} edges to the "
        f"{digits.NEIGHBOURS} nearest; {len(data.train)} labelled, {len(data.test)} to be guessed"
    )
    explanation = _train(console, data, options.epochs)
    if not options.no_compare:
        _compare(console, data.repeated(options.copies), options.copies)
    console.rule("explain() of the first layer")
    console.print(explanation, markup=False)
    return 0


def _train(console: "Console", data: "Digits", epochs: int) -> str:
    """Train on tiga with a progress bar; print the test accuracy; return the explanation."""
    import torch
    from rich.progress import Progress

    from tiga._cli import digits

    torch.manual_seed(0)
    network, scores = digits.tiga_network(data)
    step = digits.training_step(data, network, scores)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)
    with Progress(console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("training", total=epochs)
        for _ in range(epochs):
            loss = step()
            optimiser.step()
            progress.update(task, advance=1, description=f"training, loss {loss:.3f}")
    with torch.no_grad():
        right = scores()[data.test].argmax(1) == data.labels[data.test]
    console.print(f"test accuracy: [bold]{right.float().mean():.1%}[/] after {epochs} steps")
    explanation: str = str(network.spread.explain())
    return explanation


def _compare(console: "Console", data: "Digits", copies: int) -> None:
    """Time one step (forward, loss, backward) and take its peak memory, each way."""
    import torch
    from rich.table import Table

    from tiga._cli import digits

    console.print(
        f"\nThe same step on {copies} copies of the graph side by side "
        f"({len(data.x)} nodes, {len(data.source)} edges, {torch.get_num_threads()} threads):"
    )
    with console.status("compiling and timing"):
        steps = {way: digits.training_step(data, *make(data)) for way, make in digits.WAYS.items()}
        for step in steps.values():
            step()
        times = interleave(steps, budget=10)
    table = Table("", "step, ms", "÷ tiga", "extra peak memory, MiB")
    for way in steps:
        with console.status(f"memory of {way}"):
            memory = _memory(way, copies)
        ratios = [theirs / ours for theirs, ours in zip(times[way], times["tiga"], strict=True)]
        table.add_row(way, f"{1e3 * median(times[way]):.1f}", f"{median(ratios):.2f}", memory)
    console.print(table)


def _memory(way: str, copies: int) -> str:
    if not can_read_memory():
        return "not readable here"
    command = [sys.executable, "-m", "tiga._cli.demo_memory", way, str(copies)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"failed: {result.stderr.strip().splitlines()[-1]}"
    return f"{int(result.stdout.split()[-1]) / 2**20:.0f}"
