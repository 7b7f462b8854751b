"""Case 14: offsets past 2^31, by a value that lies there and by the generated code."""

import re

import pytest
import torch

import tiga as tg

ROWS, F = 8_400_000, 256
READ = (0, 8_388_607, 8_388_608, 8_399_999)
"""The first row whose offset passes 2^31 - 1 is 8,388,608."""


class Send(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.x


def test_rows_beyond_two_to_the_31_elements_are_read():
    """Only the rows that are read are touched: the rest of the array takes no memory."""
    x = torch.empty(ROWS, F, dtype=torch.float16)
    for row in READ:
        x[row] = row % 7
    graph = tg.Graph.from_coo(READ, [0] * 4, num_src=ROWS, num_dst=1)
    assert graph.walk("dst").index.dtype.itemsize == 4
    assert Send()(graph=graph, src={"x": x}).tolist() == [[13.0] * F]


torch.manual_seed(0)  # for what classes hold


class MatrixProduct(tg.Reducer):
    associative = True

    def identity(self):
        return torch.eye(2)

    def combine(self, left, right):
        return left @ right


class Everything(tg.MessagePassing):
    """Fields of every end; the widths come from the call."""

    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x) * edge.w


class Scored(Everything):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        return self.reducer(edge.w.flatten(1).sum(-1), src.x - dst.x)


class Transformed(Everything):
    weight = torch.randn(8, 8, requires_grad=True)

    def edge(self, src, dst, edge):
        return torch.relu((src.x - dst.x) @ self.weight) * edge.w


class Scanned(Everything):
    reducer = MatrixProduct()


class Costly(Everything):
    """Narrow and costly enough for edges across lanes."""

    def edge(self, src, dst, edge):
        return torch.exp(src.x - dst.x) * torch.tanh(edge.w)


class Embedded(Everything):
    table = torch.randn(5, 8, requires_grad=True)

    def edge(self, src, dst, edge):
        return src.x * self.table[edge.kind] * edge.w


CASES = {
    "wide": (Everything, (256,)),
    "scalar": (Everything, ()),
    "edges across lanes": (Costly, ()),
    "softmax": (Scored, (8,)),
    "matrix": (Transformed, (8,)),
    "scan": (Scanned, (2, 2)),
    "embedding": (Embedded, (8,)),
}


def code_of(kernel, shape, dtype=torch.float32):
    """The code of a kernel and of its gradient, after a step on a small graph."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 9, (2, 40), generator=generator)
    graph = tg.Graph.from_coo(src, dst, num_src=9, num_dst=9)
    x = torch.rand(9, *shape, dtype=dtype, requires_grad=True)
    w = torch.rand(40, *shape, dtype=dtype, requires_grad=True)
    edge = {"w": w, "kind": torch.arange(40) % 5} if kernel is Embedded else {"w": w}
    made = kernel()
    made(graph=graph, ndata={"x": x}, edge=edge).sum().backward()
    assert not made.diagnostics
    return made.code()


GEP = re.compile(
    r"getelementptr (?:inbounds )?(?:nuw )?(?P<element>[^,]+), [^,]+, (?P<index>[^\n]*)"
)
INDEX = re.compile(r"^(?P<type><\d+ x i\d+>|i\d+) (?P<value>[^,\s]+)")


def narrow_offsets(code):
    """Address computations that could wrap at 32 bits: an index that is not 64 bits wide, unless it
    counts whole rows, which are multiplied by the address computation itself."""
    found = []
    for match in GEP.finditer(code):
        index = INDEX.match(match["index"])
        assert index is not None, match[0]
        variable = not index["value"].lstrip("-").isdigit()
        by_rows = match["element"].startswith("[")
        if variable and "i64" not in index["type"] and not by_rows:
            found.append(match[0])
    return found


@pytest.mark.parametrize("name", CASES)
def test_offsets_are_computed_in_64_bits(name):
    code = code_of(*CASES[name])
    assert len(GEP.findall(code)) > 10
    assert not narrow_offsets(code)
    # Nor is anything else a product of 32-bit integers.
    assert not re.findall(r"= mul[a-z ]* (?:<\d+ x )?i32 ", code)


def test_the_check_finds_a_narrow_offset():
    text = "%2 = getelementptr float, ptr %0, i32 %1\n%3 = getelementptr float, ptr %0, i64 %1\n"
    rows = "%4 = getelementptr [8 x float], ptr %0, <16 x i32> %1, i32 3\n"
    assert len(narrow_offsets(text + rows)) == 1
