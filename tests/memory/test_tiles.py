"""Walks over graphs in files by blocks of rows and tiles of their other ends: the same bits as in
memory, within the budget, and chosen where they read less."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import tiga as tg  # noqa: E402
from tests.memory.test_forecast import predictions  # noqa: E402
from tests.memory.test_paged import (  # noqa: E402
    Attention,
    Largest,
    Layer,
    MeanOfDegrees,
    Spread,
    WeightedSum,
    results,
    same,
)
from tiga.errors import InvalidFile  # noqa: E402
from tiga.paging.tile_plan import TilePlanner  # noqa: E402
from tiga.runtime.tiers import parse_size  # noqa: E402

NODES, EDGES, WIDTH = 1200, 20_000, 8


class Several(tg.MessagePassing):
    """A sum, a product and a minimum in one walk, and a value for each edge."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        m = src.x * edge.w[:, None] - dst.x
        return tg.multi(tg.sum(), tg.min(), tg.prod())(m), tg.each()(m), tg.edge_softmax()(m)

    def node(self, dst: Any, aggregate: Any) -> Any:
        (total, least, product), each, share = aggregate
        return total + least * product, each, share


class Gain(tg.MessagePassing, torch.nn.Module):
    """A number whose gradient is a sum over all rows, in the walk that stores those of edges."""

    reducer = tg.mean()

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.7))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.tanh(src.x * self.gain + dst.x) * edge.w[:, None]


KERNELS = [WeightedSum, Largest, MeanOfDegrees, Spread, Attention, Layer, Gain]


def edges_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    dst, src = rng.integers(0, NODES, (2, EDGES))
    if kind == "hubs":
        dst[:9_000] = 7
        src[10_000:19_000] = 11
    if kind == "long":
        dst[:9_000] = np.arange(9_000) % 9
        src[10_000:12_000] = np.arange(2_000) % 5
    if kind == "gaps":
        dst, src = dst // 7 * 7, src // 3 * 3
    return src, dst


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A graph in a file whose sources ascend, by kind and width."""
    folder, known = tmp_path_factory.mktemp("tiles"), dict[Any, Any]()

    def make(kind: str, width: int = WIDTH) -> Any:
        if (kind, width) not in known:
            src, dst = edges_of(kind)
            rng = np.random.default_rng(1)
            w, x = rng.random(EDGES, np.float32), rng.random((NODES, width), np.float32)
            path = folder / f"{kind}{width}"
            tg.Graph.write_csr(
                path, [(src, dst, {"w": w})], num_nodes=NODES, fields={"src": {"x": x}},
                sort_sources=True,
            )  # fmt: skip
            known[kind, width] = tg.Graph.open(path)
        return known[kind, width]

    return make


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All walks that may go by tiles do, by several blocks and by tiles as small as may be."""

    def plan(stage: Any, limits: Any, spans: Any) -> Any:
        for share in (32, 16, 8, 4, 2, 1):
            small = replace(limits, nbytes=limits.nbytes // share)
            for tiles in (64, 32, 16, 8, 6, 4, 3):
                if found := TilePlanner(stage, small).with_tiles(small.nbytes // tiles):
                    return found
        return None

    monkeypatch.setattr("tiga.backends.llvm.paged.steps.plan_tiles", plan)


def fields(graph: Any, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of the file; in memory if they are of another type."""
    named = graph.field("src", "x"), graph.field("edge", "w")
    x, w = (torch.from_numpy(field.numpy()).to(dtype) for field in named)
    return x, w


@pytest.mark.parametrize("kind", ["random", "long", "hubs", "gaps"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_same_bits_as_in_memory(kernel: Any, kind: str, stored: Any, tiled: None) -> None:
    paged = stored(kind)
    expected = results(kernel(), paged.in_memory(), *fields(paged))
    layer, budget = kernel(), "3MiB"
    with tg.execution(memory={"host": budget}) as run:
        found = results(layer, paged, *fields(paged))
    assert same(found, expected)
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size(budget)
    assert "tiles of their other ends" in layer.explain()


@pytest.mark.parametrize(
    ("way", "budget"), [("rows in parts", "500KiB"), ("tiles of their other ends", "1500KiB")]
)
def test_several_reducers_and_values_of_edges(
    way: str, budget: str, stored: Any, tmp_path: Path, request: Any
) -> None:
    """Values of edges come with the rows' walk, and go to a file if they do not fit; each loop over
    a row stores its own."""
    if "tiles" in way:
        request.getfixturevalue("tiled")
    paged = stored("hubs")
    x, w = fields(paged)
    call: Any = {"ndata": {"x": x}, "edge": {"w": w}}
    expected = Several()(graph=paged.in_memory(), **call)
    layer, pages = Several(), NODES if "parts" in way else None
    with tg.execution(memory={"host": budget}, page_rows=pages, spill_dir=tmp_path):
        found = layer(graph=paged, **call)
    assert same(list(found), list(expected))
    assert way in layer.explain()


def computed(kernel: Any, graph: Any, budget: str, **scope: Any) -> list[torch.Tensor]:
    with tg.execution(memory={"host": budget}, **scope):
        return results(kernel, graph, *fields(graph))


def test_features_of_several_windows(stored: Any, tiled: None) -> None:
    paged = stored("hubs", 150)
    expected = results(WeightedSum(), paged.in_memory(), *fields(paged))
    layer = WeightedSum()
    assert same(computed(layer, paged, "12MiB"), expected)
    assert "tiles of their other ends" in layer.explain()


@pytest.mark.parametrize("kernel", [WeightedSum, Attention], ids=lambda k: k.__name__)
def test_fields_of_16_bits(kernel: Any, stored: Any, tiled: None) -> None:
    paged = stored("random")
    expected = results(kernel(), paged.in_memory(), *fields(paged, torch.bfloat16))
    layer = kernel()
    with tg.execution(memory={"host": "2MiB"}):
        found = results(layer, paged, *fields(paged, torch.bfloat16))
    assert same(found, expected)


def test_against_numpy(stored: Any, tiled: None) -> None:
    paged = stored("gaps")
    src, dst = edges_of("gaps")
    order = np.lexsort((src, dst))
    x, w = (field.double().numpy() for field in fields(paged))
    expected = np.zeros((NODES, WIDTH))
    np.add.at(expected, dst[order], x[src[order]] * w[:, None])
    out = computed(WeightedSum(), paged, "1MiB")[0]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_any_number_of_tiles_is_read_ahead(depth: int, stored: Any, tiled: None) -> None:
    paged = stored("random")
    expected = results(Attention(), paged.in_memory(), *fields(paged))
    assert same(computed(Attention(), paged, "2MiB", prefetch_depth=depth), expected)


def test_results_in_files(stored: Any, tiled: None, tmp_path: Path) -> None:
    """The gradients of edges are stored among those of other blocks, tile by tile."""
    paged, layer = stored("random", 32), WeightedSum()
    expected = results(WeightedSum(), paged.in_memory(), *fields(paged))
    assert same(computed(layer, paged, "700KiB", spill_dir=tmp_path), expected)
    assert "rows = src: " in layer.explain()
    assert "tiles of their other ends" in layer.explain()


def test_second_derivatives(stored: Any, tiled: None) -> None:
    paged = stored("random")

    def second(graph: Any) -> torch.Tensor:
        x, w = (field.clone().requires_grad_() for field in fields(paged))
        out = Attention()(graph=graph, ndata={"x": x}, edge={"w": w})
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), w)[0]

    expected = second(paged.in_memory())
    with tg.execution(memory={"host": "3MiB"}):
        assert torch.equal(second(paged), expected)


def test_native_tensors(stored: Any, tiled: None) -> None:
    paged = stored("random")
    x, w = fields(paged)
    call: Any = {"src": {"x": x}, "edge": {"w": w}}
    expected = WeightedSum()(graph=paged.in_memory(), **call)
    native = {k: {n: tg.tensor(v.numpy()) for n, v in f.items()} for k, f in call.items()}
    with tg.execution(memory={"host": "3MiB"}):
        found = WeightedSum()(graph=paged, **native)
        assert torch.equal(torch.from_numpy(found.numpy()), expected)


@pytest.mark.parametrize("value", [0, NODES + 5, -3])
def test_an_index_that_is_not_in_order_is_found(
    value: int, tiled: None, tmp_path: Path, stored: Any
) -> None:
    """Kernels take no edge that lies outside of the tile in memory, whatever the header says."""
    path = tmp_path / "g"
    path.write_bytes(stored("random").path.read_bytes())
    paged = tg.Graph.open(path)
    place = paged.walks["dst"].index.offset + 4 * (EDGES - 2)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.int32(value).tobytes())
    with pytest.raises(InvalidFile, match="out of its order or its range"):
        computed(WeightedSum(), paged, "3MiB")


def test_an_edge_number_of_another_row_is_found(tiled: None, tmp_path: Path, stored: Any) -> None:
    path = tmp_path / "g"
    path.write_bytes(stored("random").path.read_bytes())
    paged = tg.Graph.open(path)
    with path.open("r+b") as file:
        file.seek(paged.walks["src"].edge_id.offset)
        file.write(np.int32(EDGES - 1).tobytes())
    with pytest.raises(InvalidFile, match="out of its order or its range"):
        computed(WeightedSum(), paged, "3MiB")


CALM = [HealthCheck.function_scoped_fixture]


@settings(max_examples=15, deadline=None, suppress_health_check=CALM)
@given(
    nodes=st.integers(1, 90),
    edges=st.integers(0, 1200),
    skew=st.sampled_from([1, 4]),
    kernel=st.sampled_from([WeightedSum, Largest, Attention]),
    budget=st.sampled_from(["100KiB", "200KiB", "1MiB"]),
    depth=st.sampled_from([0, 2]),
    seed=st.integers(0, 2**31),
)
def test_any_small_graph(
    nodes: int, edges: int, skew: int, kernel: Any, budget: str, depth: int, seed: int,
    tiled: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of small tasks, at which blocks and tiles are cut."""
    monkeypatch.setattr("tiga.relations.walk.TASK_WEIGHT", 16)
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("any") / "g"
    src, dst = (rng.random((2, edges)) ** skew * nodes).astype(np.int64)
    x, w = (rng.random(shape, np.float32) for shape in ((nodes, 48), edges))
    tg.Graph.write_csr(
        path, [(src, dst, {"w": w})], num_nodes=nodes, fields={"src": {"x": x}}, sort_sources=True
    )
    paged = tg.Graph.open(path)
    expected = results(kernel(), paged.in_memory(), *fields(paged))
    assert same(computed(kernel(), paged, budget, prefetch_depth=depth), expected)


class Difference(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.relu(src.x * edge.w[:, None] - dst.y)


def test_two_sets_of_nodes(tiled: None, tmp_path: Path) -> None:
    sources, rows = 700, 400
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, sources, EDGES), rng.integers(0, rows, EDGES)
    arrays: Any = {
        "src": {"x": rng.random((sources, WIDTH), np.float32)},
        "dst": {"y": rng.random((rows, WIDTH), np.float32)},
    }
    chunks = [(src, dst, {"w": rng.random(EDGES, np.float32)})]
    paged = tg.Graph.open(tg.Graph.write_csr(
        tmp_path / "g", chunks, num_src=sources, num_dst=rows, fields=arrays, sort_sources=True
    ))  # fmt: skip
    names = (("src", "x"), ("dst", "y"), ("edge", "w"))
    values = [torch.from_numpy(paged.field(*n).numpy()).requires_grad_() for n in names]

    def called(layer: Any, graph: Any) -> list[torch.Tensor]:
        given: Any = {end: {name: v} for (end, name), v in zip(names, values, strict=True)}
        out = layer(graph=graph, **given)
        return [out, *torch.autograd.grad(out.square().sum(), values)]

    expected, layer = called(Difference(), paged.in_memory()), Difference()
    with tg.execution(memory={"host": "1MiB"}):
        assert same(called(layer, paged), expected)
    assert layer.explain().count("tiles of their other ends") > 1


# what is chosen

FAR = 20_000


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A graph whose sources are anywhere, as they came and in order."""
    rng, folder = np.random.default_rng(2), tmp_path_factory.mktemp("far")
    src, dst = rng.integers(0, FAR, (2, 4 * FAR))
    chunks = [(src, dst, {"w": rng.random(4 * FAR, np.float32)})]
    written: Any = {"num_nodes": FAR, "fields": {"src": {"x": rng.random((FAR, 64), np.float32)}}}
    return [
        tg.Graph.open(tg.Graph.write_csr(folder / str(s), chunks, sort_sources=s, **written))
        for s in (False, True)
    ]


def read_by(graph: Any, layer: Any) -> int:
    x, w = fields(graph)
    before = graph.traffic.read
    with tg.execution(memory={"host": "3MiB"}) as run:
        layer(graph=graph, src={"x": x}, edge={"w": w})
    assert run.memory_report()["peak_bytes"]["host"] <= parse_size("3MiB")
    read: int = graph.traffic.read - before
    return read


def test_tiles_are_chosen_where_they_read_less(far: Any) -> None:
    unordered, ordered = far
    layer = WeightedSum()
    much = read_by(unordered, layer)
    assert "sort_sources=True" in layer.explain()
    less = read_by(ordered, layer)
    assert "tiles of their other ends" in layer.explain()
    assert "sort_sources" not in layer.explain()
    assert 2 * less < much
    for graph in far:
        with tg.execution(memory={"host": "64MiB"}):
            layer(graph=graph, src={"x": fields(graph)[0]}, edge={"w": fields(graph)[1]})
        assert " 1 pages" in layer.explain()


def test_what_is_told_of_tiles_is_what_is_read(far: Any) -> None:
    graph, layer = far[1], WeightedSum()
    x, w = fields(graph)
    with tg.execution(memory={"host": "3MiB"}):
        told = predictions(layer, graph, src={"x": x}, edge={"w": w})
    read = read_by(graph, layer)
    assert read <= told[0].plan.read <= 1.01 * read
    assert any("tiles of their other ends" in line for line in told[0].plan.lines)
