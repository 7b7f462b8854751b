"""Measure tiga beside its peers.

usage: python -m benchmarks NAME ...    a case, a family, or `all`
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Options
from benchmarks.registry import cases, select
from benchmarks.results import Measured


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases or families; `all`")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for results")
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="timing per case")
    parser.add_argument("--skip", action="append", default=[], help="a contestant to leave out")
    options = parser.parse_args()
    if not options.names and not options.list:
        parser.error("name a case or a family, or `all`; --list shows them")
    return options


def main() -> int:
    options = _options()
    if options.list:
        print("\n".join(cases()))
        return 0
    warnings.filterwarnings("ignore", message="Sparse")  # torch announces its CSR tensors
    start = time.monotonic()
    results: list[Measured] = []
    for case in select(options.names):
        results.append(case.run(Options(options.seconds, frozenset(options.skip))))
        print(report.text(results[-1]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    report.write_json(results, options.out / "results.json")
    report.write_markdown(results, options.out / "results.md")
    report.write_plot(results, options.out / "ratios.png")
    missed = [m.name for m in results if any(v.met is False for v in m.verdicts)]
    print(f"\n{len(results)} cases in {time.monotonic() - start:.0f} s; results in {options.out}")
    print(f"bars not met: {', '.join(missed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
