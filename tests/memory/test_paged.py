"""Graphs in files: the same bits as in memory, within the budget, forward and backward."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import (
    InvalidFile,
    InvalidType,
    InvalidValue,
    OutOfBudget,
    UnknownName,
    UnsupportedByBackend,
)
from tiga.runtime.tiers import parse_size

torch = pytest.importorskip("torch")

NODES, EDGES, WIDTH = 3000, 60_000, 8


class WeightedSum(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


class Largest(tg.MessagePassing):
    reducer = tg.max()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x - dst.x


class MeanOfDegrees(tg.MessagePassing):
    reducer = tg.mean()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.tanh(src.x * dst.x) + edge.w[:, None]


class Spread(tg.MessagePassing):
    reducer = tg.std()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return src.x * edge.w[:, None]


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer((src.x * dst.x).sum(-1) * edge.w, src.x)


class Layer(tg.MessagePassing, torch.nn.Module):
    """Weights on both sides: node products, per-edge bias, sums over nodes and edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.message = torch.nn.Linear(2 * WIDTH + 1, WIDTH)
        self.update = torch.nn.Linear(2 * WIDTH, WIDTH)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        joined = torch.cat([src.x, dst.x, edge.w[:, None]], -1)
        return torch.nn.functional.silu(self.message(joined))

    def node(self, dst: Any, aggregate: Any) -> Any:
        return self.update(torch.cat([dst.x, aggregate], -1))


class Composed(tg.Reducer):
    """Compositions of `v -> a v + b`, in edge order."""

    associative = True

    def identity(self) -> Any:
        return 1.0, 0.0

    def lift(self, a: Any, b: Any) -> Any:
        return a, b

    def combine(self, left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    def finalize(self, state: Any) -> Any:
        return state[1]


class Chain(tg.MessagePassing):
    """A scan over the edges of a row."""

    reducer = Composed()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer(torch.sigmoid(src.x), src.x * edge.w[:, None])


KERNELS = [WeightedSum, Largest, MeanOfDegrees, Spread, Attention, Layer]


def make_graph(kind: str) -> tg.Graph:
    rng = np.random.default_rng(5)
    dst = rng.integers(0, NODES, EDGES)
    src = rng.integers(0, NODES, EDGES)
    if kind == "hubs":
        dst[:15_000] = 7
        src[20_000:32_000] = 11
    if kind == "local":
        src = (dst + rng.integers(0, 40, EDGES)) % NODES
    if kind == "gaps":
        dst = dst // 7 * 7
    order = np.argsort(dst, kind="stable")
    row_ptr = np.concatenate(([0], np.cumsum(np.bincount(dst, minlength=NODES))))
    return tg.Graph.from_csr(row_ptr, src[order], num_src=NODES)


def fields(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(NODES, WIDTH, generator=generator).to(dtype)
    return x, torch.rand(EDGES, generator=generator).to(dtype)


def attached(graph: Any, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The fields as tensors mapped from the graph's file."""
    if x.dtype == torch.bfloat16:
        return x.clone(), w.clone()
    pair = graph.field("src", "x").numpy(), graph.field("edge", "w").numpy()
    return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


def results(kernel: Any, graph: Any, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradients of all inputs and parameters."""
    x.requires_grad_()
    w.requires_grad_()
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    loss = (out.float() * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum()
    wanted = [x, w, *(kernel.parameters() if isinstance(kernel, torch.nn.Module) else ())]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [out.detach(), *(g for g in found if g is not None)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Any]]:
    made: dict[Any, tuple[Any, Any]] = {}
    folder = tmp_path_factory.mktemp("graphs")

    def get(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
        if (kind, dtype) not in made:
            graph, (x, w) = make_graph(kind), fields(dtype)
            path = graph.save(folder / f"{kind}-{dtype}", {"src": {"x": x}, "edge": {"w": w}})
            made[kind, dtype] = graph, tg.Graph.open(path)
        return made[kind, dtype]

    return get


@pytest.mark.parametrize("kind", ["random", "hubs", "local", "gaps"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_same_bits_as_in_memory(kernel: Any, kind: str, stored: Any) -> None:
    graph, paged = stored(kind)
    expected = results(kernel(), graph, *fields())
    budget = "8MiB" if kind == "hubs" else "3MiB"
    layer = kernel()
    with tg.execution(memory={"host": budget}, prefetch_depth=1) as run:
        found = results(layer, paged, *attached(paged, *fields()))
    assert same(found, expected)
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)
    assert "pages" in layer.explain()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_a_row_that_does_not_fit_a_page_goes_from_page_to_page(
    kernel: Any, stored: Any, tmp_path: Path
) -> None:
    """The row's 15,000 edges alone take 300 KiB and more; its node fields are 94 KiB."""
    graph, paged = stored("hubs")
    expected = results(kernel(), graph, *fields())
    layer = kernel()
    # `page_rows` asks for pages, where blocks of rows and tiles of their other ends read less.
    pages: Any = {"memory": {"host": "300KiB"}, "page_rows": NODES}
    with tg.execution(**pages, spill_dir=tmp_path) as run:
        found = results(layer, paged, *attached(paged, *fields()))
    assert same(found, expected)
    assert "rows in parts" in layer.explain()
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size("300KiB")


@pytest.mark.parametrize("budget", ["300KiB", "3MiB"])
def test_scans_over_long_rows(budget: str, stored: Any, tmp_path: Path) -> None:
    graph, paged = stored("hubs")
    x, w = fields()
    expected = Chain()(graph=graph, src={"x": x}, edge={"w": w})
    with tg.execution(memory={"host": budget}, spill_dir=tmp_path):
        found = Chain()(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes(dtype: torch.dtype, stored: Any) -> None:
    graph, paged = stored("random", dtype)
    expected = results(Attention(), graph, *fields(dtype))
    with tg.execution(memory={"host": "6MiB"}):
        assert same(results(Attention(), paged, *attached(paged, *fields(dtype))), expected)


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("rows", [None, 300])
def test_pages_of_any_size_give_the_same(depth: int, rows: int | None, stored: Any) -> None:
    graph, paged = stored("random")
    expected = results(Layer(), graph, *fields())
    with tg.execution(page_rows=rows, prefetch_depth=depth):
        assert same(results(Layer(), paged, *attached(paged, *fields())), expected)


def test_outputs_that_do_not_fit_are_mapped_from_disk(stored: Any, tmp_path: Path) -> None:
    graph, paged = stored("local")
    expected = results(Layer(), graph, *fields())
    with tg.execution(memory={"host": "1200KiB"}, spill_dir=tmp_path, prefetch_depth=0) as run:
        found = results(Layer(), paged, *attached(paged, *fields()))
        assert run.memory_report()["live_bytes"]["nvme"] > 0
    assert same(found, expected)
    del found
    assert run.memory_report()["live_bytes"]["nvme"] == 0


def test_fields_in_memory_and_in_the_file_mix(stored: Any) -> None:
    graph, paged = stored("random")
    x, w = fields()
    expected = WeightedSum()(graph=graph, src={"x": x}, edge={"w": w})
    with tg.execution(memory={"host": "3MiB"}):
        for edge in (paged.fields["edge"], {"w": w}):
            for src in (paged.fields["src"], {"x": x}, {"x": x.T.contiguous().T}):
                out = WeightedSum()(graph=paged, src=src, edge=edge)
                assert torch.equal(out, expected)


def test_what_was_written_to_a_mapped_tensor_counts(stored: Any) -> None:
    graph, paged = stored("random")
    x, w = attached(paged, *fields())
    x.mul_(2.0)
    expected = WeightedSum()(graph=graph, src={"x": fields()[0] * 2.0}, edge={"w": w.clone()})
    assert torch.equal(WeightedSum()(graph=paged, src={"x": x}, edge={"w": w}), expected)


def test_what_was_written_to_one_tensor_of_a_field_is_in_no_other(stored: Any) -> None:
    _, paged = stored("random")
    written, w = attached(paged, *fields())
    written.mul_(2.0)
    x, _ = attached(paged, *fields())
    assert torch.equal(x, fields()[0])
    expected = WeightedSum()(graph=paged, src=paged.fields["src"], edge={"w": w})
    assert torch.equal(WeightedSum()(graph=paged, src={"x": x}, edge={"w": w}), expected)


def test_second_derivatives(stored: Any) -> None:
    graph, paged = stored("random")

    def second(of: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        out = MeanOfDegrees()(graph=of, ndata={"x": x}, edge={"w": w})
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    expected = second(graph, *fields())
    with tg.execution(memory={"host": "5MiB"}):
        assert torch.equal(second(paged, *attached(paged, *fields())), expected)


def test_two_sets_of_nodes_and_edge_order(tmp_path: Path, rng: np.random.Generator) -> None:
    src, dst = rng.integers(0, 500, 30_000), rng.integers(0, 4000, 30_000)
    graph = tg.Graph.from_coo(src, dst, num_src=500, num_dst=4000)
    x, w = torch.rand(500, 3), torch.rand(30_000)
    paged = tg.Graph.open(tg.save(graph, tmp_path / "plain"))
    with pytest.raises(UnknownName, match=r"src\.x"):
        paged.field("src", "x")
    paged = tg.load(graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    expected = WeightedSum()(graph=graph, src={"x": x}, edge={"w": w})
    found = WeightedSum()(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(0, 0, 0), (1, 1, 1), (5, 0, 0), (0, 5, 0), (4, 3, 7)], ids=str)
def test_small_and_empty_graphs(shape: tuple[int, int, int], tmp_path: Path) -> None:
    num_src, num_dst, edges = shape
    ends = [torch.arange(edges) % max(n, 1) for n in (num_src, num_dst)]
    graph = tg.Graph.from_coo(*ends, num_src=num_src, num_dst=num_dst)
    x, w = torch.rand(num_src, 2), torch.rand(edges)
    paged = tg.Graph.open(graph.save(tmp_path / "g", {"src": {"x": x}, "edge": {"w": w}}))
    expected = WeightedSum()(graph=graph, src={"x": x}, edge={"w": w})
    found = WeightedSum()(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
    assert torch.equal(found, expected)


def test_a_budget_that_holds_no_page_says_what_it_takes(stored: Any) -> None:
    _, paged = stored("random")
    with tg.execution(memory={"host": "4KiB"}), pytest.raises(OutOfBudget, match="at least"):
        WeightedSum()(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])


def test_the_plan_predicts_what_is_read(stored: Any) -> None:
    for kind in ("random", "local"):
        _, paged = stored(kind)
        layer, before = WeightedSum(), paged.traffic.read
        with tg.execution(memory={"host": "3MiB"}):
            layer(graph=paged, src=paged.fields["src"], edge=paged.fields["edge"])
        read = paged.traffic.read - before
        ((_, part),) = layer._inspected().parts()
        plan = part.cpu().executable.pages
        assert plan.pages > 0
        assert read / 1.5 <= plan.read <= 1.5 * read


def test_what_pages_cannot_do_says_so(stored: Any, tmp_path: Path) -> None:
    _, paged = stored("random")
    for use in (paged.csr, lambda: paged.walk("dst"), lambda: paged.row_ptr,
                lambda: paged.save(tmp_path / "x"), lambda: paged.coo()):  # fmt: skip
        with pytest.raises(UnsupportedByBackend, match="in_memory"):
            use()


def test_bad_fields_are_refused(tmp_path: Path) -> None:
    graph = tg.Graph.from_coo([0, 1], [1, 0])
    bad = [
        ({"node": {"x": np.ones(2)}}, InvalidValue),
        ({"src": {"x": np.ones(3)}}, InvalidValue),
        ({"src": {"x": np.array(["a", "b"])}}, InvalidType),
        ({"src": [1]}, InvalidType),
        ([1], InvalidType),
    ]
    for given, error in bad:
        with pytest.raises(error, match=r"save|field"):
            graph.save(tmp_path / "g", given)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_refused_before_a_wrong_value(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    graph = tg.Graph.from_coo(rng.integers(0, 50, 300), rng.integers(0, 50, 300), num_dst=50)
    path = graph.save(tmp_path / "g", {"src": {"x": np.ones((50, 2), np.float32)}})
    whole = path.read_bytes()
    assert tg.Graph.open(path).verify() is None
    for _ in range(200):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(flipped))
        with pytest.raises(InvalidFile):
            tg.Graph.open(path).verify()
    for cut in rng.integers(0, len(whole), 50):
        path.write_bytes(whole[:cut])
        with pytest.raises(InvalidFile):
            tg.Graph.open(path)


def test_an_index_out_of_range_is_found_before_the_kernel_runs(tmp_path: Path) -> None:
    graph = make_graph("random")
    path = graph.save(tmp_path / "g")
    paged = tg.Graph.open(path)
    offset = paged.walks["dst"].index.offset
    with path.open("r+b") as file:
        file.seek(offset + 4 * 100)
        file.write(np.int32(NODES + 5).tobytes())
    x, w = fields()
    with pytest.raises(InvalidFile, match="out of the range"):
        WeightedSum()(graph=paged, src={"x": x}, edge={"w": w})
