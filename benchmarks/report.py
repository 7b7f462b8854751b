"""What was measured, as a table, as JSON and as a picture."""

import datetime
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.results import TIGA, Measured

PACKAGES = ("tiga-lang", "torch", "torch-mlir", "numpy", "scipy", "torch_sparse", "torch_geometric")
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
COLOURS = tuple(f"C{number}" for number in range(10))
GAP = 1.0
"""Between the bars of two cases, in bars."""
MARK = {True: "met", False: "NOT met", None: "not measured"}


def machine() -> dict[str, object]:
    """Where and with what the figures were taken."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    wide = any("avx512f" in line for line in lines if line.startswith("flags"))
    return (models[0] if models else platform.processor()) + (", AVX-512" if wide else "")


def text(measured: Measured) -> str:
    """One case as lines for a terminal."""
    lines = [f"{measured.name}  {' '.join(f'{k}={v}' for k, v in measured.shape.items())}"]
    for name, reading in measured.readings.items():
        ratio = measured.ratios.get(name)
        against = f"   {ratio}× tiga" if ratio else ""
        lines.append(f"    {name:<28} {reading!s:>28} {measured.unit}{against}")
    lines += [f"    {note}" for note in measured.notes]
    for verdict in measured.verdicts:
        value = "" if verdict.value is None else f" ({verdict.value:.3g})"
        lines.append(f"    bar {verdict.bar}: {MARK[verdict.met]}{value}")
    return "\n".join(lines)


def write_json(results: Sequence[Measured], path: Path) -> None:
    """All results with their verdicts and the machine."""
    cases = [
        {**asdict(measured), "verdicts": [asdict(verdict) for verdict in measured.verdicts]}
        for measured in results
    ]
    path.write_text(json.dumps({"machine": machine(), "cases": cases}, indent=1) + "\n")


def write_markdown(results: Sequence[Measured], path: Path) -> None:
    """A table of all cases, as docs/performance.md holds it."""
    lines = [
        "| case | tiga | peers: reading (ratio to tiga, 10th–90th percentile) | bar |",
        "|---|---|---|---|",
    ]
    for measured in results:
        own = measured.readings.get(TIGA)
        peers = [_peer(measured, name) for name in measured.readings if name != TIGA]
        bars = [f"{v.bar}: {MARK[v.met]}" for v in measured.verdicts]
        shown = "–" if own is None else f"{own.median:.3g} {measured.unit}"
        row = (measured.name, shown, "; ".join(peers) or "–", "; ".join(bars) or "–")
        lines.append(f"| {' | '.join(row)} |")
    path.write_text("\n".join(lines) + "\n")


def _peer(measured: Measured, name: str) -> str:
    shown = f"{name} {measured.readings[name].median:.3g}"
    ratio = measured.ratios.get(name)
    if ratio is None:
        return shown
    return f"{shown} (**{ratio.median:.2g}×**, {ratio.low:.2g}–{ratio.high:.2g})"


def write_plot(results: Sequence[Measured], path: Path) -> None:
    """How many times longer each peer takes, case by case; a line marks equal speed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    timed = [measured for measured in results if measured.ratios]
    if not timed:
        return
    bars = sum(len(measured.ratios) for measured in timed)
    height = 1.4 + 0.16 * (bars + GAP * len(timed))
    figure, axes = plt.subplots(figsize=(9, height), layout="constrained")
    _draw_bars(axes, timed)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlabel("peer's time ÷ tiga's time (median; whiskers: 10th and 90th percentile)")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_bars(axes: Any, timed: Sequence[Measured]) -> None:
    """One bar for each peer that a case has, cases a gap apart, a peer in one colour."""
    peers = sorted({peer for measured in timed for peer in measured.ratios})
    colours, labelled, places, at = dict(zip(peers, COLOURS * 2, strict=False)), set(), [], 0.0
    for measured in timed:
        places.append(at + (len(measured.ratios) - 1) / 2)
        for peer in sorted(measured.ratios):
            ratio = measured.ratios[peer]
            spread = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
            label = None if peer in labelled else peer
            # From 1: a peer that is as fast has no bar, and a faster one's goes to the left.
            axes.barh(at, ratio.median - 1, 1, 1, xerr=spread, color=colours[peer], label=label,
                      error_kw={"elinewidth": 0.8})  # fmt: skip
            labelled.add(peer)
            at += 1
        at += GAP
    axes.set_yticks(places, [measured.name for measured in timed])
