"""How long the first training step of a process takes, which compiles its kernels.

    python -m benchmarks.first_steps [--models name,name] [--processes 3] [--sm 90]

Each model takes its first step in processes of its own: forward, backward, and for potentials the
derivative of forces. Given are the least wall and processor seconds of the step, and of a second:
of processes that compile their kernels, and of processes that find them on disk, in turns.

`--sm` has the kernels of potentials compiled for a GPU of this compute capability instead, of which
none is needed, with an empty cache of Triton's, and once more with what that left there.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

import tiga as tg
from benchmarks.processes import NOTHING_KEPT, kept_in, run_child
from tiga.frontends.torch.variants import state_of
from tiga.trace.program import Program

NODES, DEGREE, WIDTH = 2000, 8, 64

Step = Callable[[], Any]


def _edges() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(NODES, (NODES * DEGREE,), generator=generator)
    return torch.stack([source, torch.arange(NODES).repeat_interleave(DEGREE)])


def _layer_step(name: str) -> Step:
    from torch_geometric import nn as pyg

    import tiga.interop.pyg

    degrees = torch.tensor([0] * DEGREE + [NODES])
    perceptron = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    ways, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    made = {
        "gcn": lambda: pyg.GCNConv(WIDTH, WIDTH),
        "gat": lambda: pyg.GATConv(WIDTH, WIDTH // 4, heads=4),
        "edgeconv": lambda: pyg.EdgeConv(perceptron),
        "pna": lambda: pyg.PNAConv(WIDTH, WIDTH, ways, scalers, degrees),
    }
    layer = tiga.interop.pyg.compile(made[name]())
    x, edges = torch.randn(NODES, WIDTH, requires_grad=True), _edges()
    return lambda: layer(x, edges).square().mean().backward()


def _potential_step(name: str) -> Step:
    return _potential(name)[1]


def _potential(name: str) -> tuple[nn.Module, Step]:
    from benchmarks import potentials

    layer = {"schnet": potentials.SchNetLayer, "painn": potentials.PaiNNLayer}[name]
    model, kind = potentials.Potential(layer), torch.randint(8, (NODES,))
    position = 5 * torch.rand(NODES, 3)
    edges = _edges()
    graph = tg.Graph.from_edge_index(edges[:, edges[0] != edges[1]], num_nodes=NODES)
    return model, lambda: potentials.loss_of(model, graph, kind, position).backward()


MODELS: dict[str, Callable[[str], Step]] = {
    "gcn": _layer_step, "gat": _layer_step, "edgeconv": _layer_step, "pna": _layer_step,
    "schnet": _potential_step, "painn": _potential_step,
}  # fmt: skip


POTENTIALS = ("schnet", "painn")


def _processor() -> float:
    return sum(os.times()[:4])


def _timed(step: Step) -> tuple[float, float]:
    start, used = time.perf_counter(), _processor()
    step()
    return time.perf_counter() - start, _processor() - used


def child(name: str) -> None:
    """Take two steps of a model and print what they took."""
    torch.manual_seed(0)
    step = MODELS[name](name)
    torch.nn.Linear(4, 4)(torch.randn(4, 4)).sum().backward()
    first, used = _timed(step)
    second, _ = _timed(step)
    print(json.dumps({"first": first, "processor": used, "second": second}))


def _programs(model: nn.Module) -> list[Program]:
    """What the kernels of a model have run on the CPU, in order."""
    kernels = (m for m in model.modules() if isinstance(m, tg.MessagePassing))
    units = (variant.unit for kernel in kernels for variant in state_of(kernel).all())
    ran = (found for unit in units if unit for _, found in unit.runnables() if found.is_compiled)
    return list(dict.fromkeys(found.program for found in ran))


def gpu_child(name: str, capability: int) -> None:
    """Compile what a model's step takes for a GPU, and print what that took."""
    from tiga.backends.triton.ahead import compile_ahead
    from tiga.backends.triton.executable import compile_program
    from tiga.backends.triton.loaded import Kernel

    torch.manual_seed(0)
    model, step = _potential(name)
    step()
    programs, kernels = _programs(model), list[Kernel]()

    def compiled() -> None:
        for program in programs:
            made = [Kernel(source) for source in compile_program(program).sources(DEGREE, False)]
            keys = [[p.type.startswith("*") for p in k.source.parameters] for k in made]
            compile_ahead([(k, tuple(a)) for k, a in zip(made, keys, strict=True)], capability)
            kernels.extend(made)

    wall, used = _timed(compiled)
    print(json.dumps({"wall": wall, "processor": used, "programs": len(programs),
                      "kernels": len(kernels)}))  # fmt: skip


def _report_gpu(names: list[str], capability: int) -> None:
    print("| model, cache | programs | kernels | wall s | processor s |\n|---|---|---|---|---|")
    for name in names:
        with TemporaryDirectory() as folder:
            os.environ["TRITON_CACHE_DIR"] = folder
            for cache in ("empty", "full"):
                arguments = ("--child", name, "--sm", str(capability))
                found = run_child("benchmarks.first_steps", *arguments, seconds=1800)
                print(f"| {name}, {cache} | {found['programs']} | {found['kernels']} | "
                      f"{found['wall']:.1f} | {found['processor']:.1f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda names: names.split(","), default=list(MODELS))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--sm", type=int)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child and args.sm:
        gpu_child(args.child, args.sm)
    elif args.child:
        child(args.child)
    elif args.sm:
        _report_gpu([name for name in args.models if name in POTENTIALS], args.sm)
    else:
        _report(args.models, args.processes)


def _report(names: list[str], processes: int) -> None:
    print("| model, kernels | first step s | processor s | second step s |\n|---|---|---|---|")
    for name in names:
        with TemporaryDirectory() as folder:
            ways = {"compiled": NOTHING_KEPT, "from disk": kept_in(folder)}
            _step_of(name, ways["from disk"])  # leaves them there
            found = [{way: _step_of(name, ways[way]) for way in ways} for _ in range(processes)]
        for way in ways:
            least = {key: min(one[way][key] for one in found) for key in found[0][way]}
            print(f"| {name}, {way} | {least['first']:.2f} | {least['processor']:.2f} | "
                  f"{least['second']:.3f} |", flush=True)  # fmt: skip


def _step_of(name: str, kernels: Mapping[str, str]) -> dict[str, float]:
    return run_child("benchmarks.first_steps", "--child", name, kernels=kernels)


if __name__ == "__main__":
    main()
