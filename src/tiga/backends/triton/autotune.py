"""Tiles chosen by measuring, once: the result is kept on disk for later processes.

Off unless asked for (`TIGA_AUTOTUNE=1`), as sums in another order have other last bits: what was
measured once stays, so that a machine's results repeat all the same.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from tiga.backends.triton.choice import edge_tile
from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.heads import may_slice
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.layout import WARP, Tile
from tiga.backends.triton.preparation import Run
from tiga.backends.triton.schedule import AHEAD, choose_tile, words_of
from tiga.backends.triton.segments import fits
from tiga.backends.triton.topology import Degrees
from tiga.errors import TigaError
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import evaluated
from tiga.runtime.cache_files import cache_folder

T = TypeVar("T")

LEAST_GAIN = 0.98
"""A tile replaces the chosen one if it takes less than this part of its time."""

MOST_WARPS = 8
"""Warps of a program, at most."""

MOST_ELEMENTS = 64
"""Elements of a value per thread: more spill registers."""

LEAST_WINDOW = 16
"""Features of the narrowest window: two sectors of memory in float32."""

KEPT = ("window", "slices", "ahead")
"""What else is kept of a tile; files from before that know less."""

EDGE_TILES = ((256, 2), (512, 4), (1024, 4))
"""Edges and warps of tiles of consecutive edges."""


def candidates(program: RowProgram, degrees: Degrees, chosen: Tile) -> Iterator[Tile]:
    """Tiles worth measuring beside the chosen one: half and twice as many rows, edges and warps,
    fewer features at a time, and tiles of consecutive edges where they fit."""
    if isinstance(chosen, EdgeTile) or fits(program):
        yield from (edge_tile(*shape) for shape in EDGE_TILES if edge_tile(*shape) != chosen)
    if isinstance(chosen, EdgeTile):
        chosen = choose_tile(program, degrees.typical, degrees.few)
        yield chosen
    if not words_of(evaluated(program)):
        yield from narrower(chosen)
    yield from otherwise(program, chosen)
    near = product(*map(_around, (chosen.rows, chosen.edges, chosen.warps)))
    for rows, edges, warps in near:
        tile = replace(chosen, rows=rows, edges=edges, warps=warps)
        one_by_one = edges == 1 or not program.scans
        if tile != chosen and one_by_one and _is_possible(tile):
            yield tile


def _around(count: int) -> tuple[int, int, int]:
    return count // 2, count, 2 * count


def _is_possible(tile: Tile) -> bool:
    """Whether a tile is one, and its values fit the registers of its threads."""
    elements, threads = tile.rows * tile.edges * (tile.window or 1), WARP * tile.warps
    return 1 <= tile.warps <= MOST_WARPS and 0 < elements <= threads * MOST_ELEMENTS


def narrower(chosen: Tile) -> Iterator[Tile]:
    """Tiles of more rows and fewer features: one part of all values after another is gathered, of
    which a cache holds more."""
    for parts in (2, 4):
        if chosen.window // parts >= LEAST_WINDOW:
            rows, window = chosen.rows * parts, chosen.window // parts
            yield replace(chosen, rows=rows, window=window)


def otherwise(program: RowProgram, chosen: Tile) -> Iterator[Tile]:
    """Tiles with their loops as far ahead as others would be, and in halves."""
    if not program.scans:
        yield replace(chosen, ahead=0 if chosen.ahead else AHEAD)
    if not chosen.is_flat and chosen.slices == 1 and may_slice(program, 2):
        yield replace(chosen, slices=2, rows=2 * chosen.rows)


def tune(
    steps: Sequence[Any],
    run: Run,
    machine: str,
    make: Callable[[], T],
    milliseconds: Callable[[T], float],
) -> T:
    """Measure tiles of every row program over edges, one after another, and keep the best.

    Args:
        steps: the steps of a plan.
        run: the graphs that it runs on.
        machine: the name of the device and the versions that times depend on.
        make: binds the plan with the tiles as they are now.
        milliseconds: the time of what `make` gives.
    """
    for step in steps:
        if isinstance(step, RowStep) and step.program.relation is not None:
            _tune_step(step, run, machine, make, milliseconds)
    return make()


def _tune_step(
    step: RowStep, run: Run, machine: str, make: Callable[[], T], milliseconds: Callable[[T], float]
) -> None:
    assert step.program.relation is not None
    walk = run.walk(step.program.relation, step.program.side)
    if walk.degrees in step.measured:
        return
    chosen = step.tile(walk.degrees)
    folder = cache_folder("tiles")
    place = None if folder is None else folder / f"{_key(step, walk.degrees, machine)}.json"
    known = None if place is None else _load(place, step.program, walk.degrees, chosen)
    if known is not None:
        step.use(walk, known, "measured before on this machine")
        return
    times = {chosen: milliseconds(make())}
    for tile in candidates(step.program, walk.degrees, chosen):
        step.use(walk, tile, "")
        try:
            times[tile] = milliseconds(make())
        except (TigaError, RuntimeError, ValueError, AssertionError):
            continue  # a tile that the compiler or the device refuses
    best = min(times, key=times.__getitem__)
    best = best if times[best] < LEAST_GAIN * times[chosen] else chosen
    step.use(walk, best, f"the best of {len(times)} measured: {_told(times, best, chosen)}")
    if place is not None:
        _save(place, best, times[best])


def _told(times: dict[Tile, float], best: Tile, chosen: Tile) -> str:
    if best == chosen:
        return f"{times[best]:.4f} ms"
    return f"{times[best]:.4f} ms, {chosen} took {times[chosen]:.4f}"


# on disk


def _key(step: RowStep, degrees: Degrees, machine: str) -> str:
    texts = [source.text for _, source in step.sources(step.typical())]
    return hashlib.sha256(repr((texts, degrees, machine)).encode()).hexdigest()[:32]


def _load(place: Path, program: RowProgram, degrees: Degrees, chosen: Tile) -> Tile | None:
    try:
        known = json.loads(place.read_text())
        shape = {name: int(known[name]) for name in ("rows", "edges", "warps")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if known.get("kind") == "edges":
        return edge_tile(shape["edges"], shape["warps"])
    if isinstance(chosen, EdgeTile):
        chosen = choose_tile(program, degrees.typical, degrees.few)
    others = {name: int(known.get(name, getattr(chosen, name))) for name in KEPT}
    return replace(chosen, **shape, **others)


def _save(place: Path, tile: Tile, milliseconds: float) -> None:
    kind = "edges" if isinstance(tile, EdgeTile) else "rows"
    shape = {name: getattr(tile, name) for name in ("rows", "edges", "warps", *KEPT)}
    text = json.dumps({"kind": kind, **shape, "milliseconds": milliseconds})
    partial = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text)
        partial.replace(place)
    except OSError:
        return  # a machine without a home is tuned anew by each process
