"""Records of launches on a GPU, against a driver that writes down what is launched with what."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.gpu import harness, programs
from tiga.backends.triton import ahead, loaded
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.topology import device_walk
from tiga.runtime.cuda import TorchPlatform
from tiga.runtime.driver import Driver
from tiga.types import float32

HIDDEN = 2
SHARED = 200_000


class Machine:
    """A driver's library: answers 0 to everything, numbers the functions that it loads, and keeps
    launches with their arguments."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parameters: dict[str, int] = {}
        self.launches: list[tuple[str, tuple[int, int, int], list[int]]] = []

    def __getattr__(self, name: str):
        known = {
            "cuModuleGetFunction": self.load,
            "cuDeviceGetAttribute": self.tell,
            "cuLaunchKernel": self.launch,
        }
        return known.get(name, lambda *arguments: 0)

    def load(self, handle, module, name) -> int:
        self.names.append(name.value.decode())
        handle._obj.value = len(self.names)
        return 0

    def tell(self, value, number, device) -> int:
        value._obj.value = SHARED
        return 0

    def launch(self, handle, x, y, z, *rest) -> int:
        grid, table = (x.value, y.value, z.value), rest[-2]
        name = self.names[handle.value - 1]
        places = (ctypes.c_uint64 * self.parameters[name]).from_address(table.value)
        taken = [ctypes.c_uint64.from_address(place).value for place in places]
        self.launches.append((name.split("#")[0], grid, taken))
        return 0


class Platform(TorchPlatform):
    """Tensors of the CPU in the place of those of a GPU."""

    is_gpu, capability, index, name = True, 90, 0, "stand-in"


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    driver = Driver(made, 0)

    def compile_kernel(source, capability, aligned):
        name = f"{source.name}#{len(made.parameters)}"
        facts = SimpleNamespace(name=name, num_warps=4, shared=0, global_scratch_size=0,
                                target=SimpleNamespace(warp_size=32))  # fmt: skip
        made.parameters[name] = len(source.parameters)
        ptx = f".entry {name}({'.param ' * (len(source.parameters) + HIDDEN)})"
        return SimpleNamespace(metadata=facts, asm={"ptx": ptx, "cubin": b"code"})

    monkeypatch.setattr(loaded, "driver", lambda index: driver)
    monkeypatch.setattr(loaded, "is_interpreted", lambda: False)
    monkeypatch.setattr(ahead, "is_interpreted", lambda: False)
    for module in (loaded, ahead):
        monkeypatch.setattr(module, "compile_kernel", compile_kernel)
    return made


def problem(seed, longest=20):
    rng = np.random.default_rng(seed)
    return harness.problem(rng, 30 + seed, 25, rng.integers(0, longest, 25))


def recorded(executable, where, platform):
    topology = where.graph.snapshot()
    graphs = [topology] * len(executable.relations)
    extents = {node.type.space: topology.num_edges for node in executable.plan.inputs
               if node.type.space == harness.RELATION.edge}  # fmt: skip
    run = executable._run(graphs, platform, extents)
    return executable._record(run, None), topology


def played(machine, record, executable):
    """The launches of a record whose given arrays are at 4096, 8192, ..., and its arena."""
    given = [4096 * (i + 1) for i in range(len(executable.plan.inputs + executable.plan.outputs))]
    arena = 1 << 40
    addresses = [*given, *(arena + piece.offset for piece in record.pieces)]
    machine.launches.clear()
    record.slots.fill(addresses)
    launches = [a for a in record.actions if hasattr(a, "launch")]
    for action in launches:
        action.launch(ctypes.c_void_p(0))
    return list(machine.launches)


def kernels(executable):
    return {k.source.name: k for step in executable.steps if hasattr(step, "kernels")
            for variant in step.kernels.values() for _, k in variant}  # fmt: skip


NAMES = ("softmax", "heads", "largest", "difference_network", "total", "joined_layer")


@pytest.mark.parametrize("longest", [20, 700], ids=["short rows", "split rows"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_take_what_their_parameters_stand_for(machine, name, longest):
    executable = compile_program(programs.MAKERS[name](float32).program)
    platform = Platform(torch.device("cpu"))
    given = (*executable.plan.inputs, *executable.plan.outputs)
    for seed in (0, 1):
        record, topology = recorded(executable, problem(seed, longest), platform)
        walks = [device_walk(topology, side, platform) for side in ("dst", "src")]
        launches = played(machine, record, executable)
        assert launches
        known = kernels(executable)
        for kernel, grid, taken in launches:
            source = known[kernel].source
            assert grid[1:] == (source.tile.windows, 1)
            for parameter, argument in zip(source.parameters, taken, strict=True):
                key = parameter.key
                if key in ("row_ptr", "index", "item_row"):
                    arrays = [getattr(walk, key) for walk in walks]
                    ends = [(a.data_ptr(), a.data_ptr() + a.nbytes) for a in arrays]
                    assert any(low <= argument <= high for low, high in ends), key
                elif key == "num_chunks":
                    assert argument in [walk.num_chunks for walk in walks] or argument == 0
                elif isinstance(key, tuple) and key[0] == "array" and key[1] in given:
                    assert argument == 4096 * (given.index(key[1]) + 1)
                elif isinstance(key, tuple) and key[0] != "degree":
                    assert argument >= 1 << 40, "a piece of the arena"


@pytest.mark.parametrize("name", NAMES)
def test_a_new_graph_is_served_as_by_a_program_that_met_no_other(machine, name):
    program = programs.MAKERS[name](float32).program
    platform, used = Platform(torch.device("cpu")), compile_program(program)
    first = problem(0)
    recorded(used, first, platform)
    for where in (problem(1), problem(2, 700), first):
        fresh = compile_program(program)
        found = [played(machine, recorded(e, where, platform)[0], e) for e in (used, fresh)]
        assert found[0] == found[1]
