"""What every graph offers about files: saving, opening, writing edge lists larger than memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiga.relations.paged import PagedGraph


class Stored:
    """Base class of graphs; `paged` says whether the edges stay in a file."""

    __slots__ = ()

    paged = False

    def save(self, path: Any, fields: Any = None, overwrite: bool = False) -> Path:
        """Write the graph, and fields, to the file that `Graph.open` reads; returns the path.

        Args:
            fields: arrays or tensors by namespace and name, `{"src": {"x": x}, "edge": {...}}`;
                edge fields in edge order. The file holds them in CSR order.
            overwrite: replace a file that is there, at once when the new one is whole.

        Raises:
            FileExistsError: there is a file, and no `overwrite`.
            InvalidValue: a field whose leading extent is not the graph's.
            OSError: the disk is full or not writable; nothing is left then.

        Example:
            >>> import tempfile, numpy as np, tiga as tg
            >>> graph = tg.Graph.from_coo([0, 2], [1, 0])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = graph.save(folder + "/g.tiga", {"src": {"x": np.ones(3)}})
            ...     paged = tg.Graph.open(path)
            ...     paged.num_edges, paged.field("src", "x").shape
            (2, (3,))
        """
        from tiga.relations.store import save_graph

        graph: Any = self
        return save_graph(graph, path, fields, overwrite)

    @staticmethod
    def open(path: Any, device: Any = "cpu") -> "PagedGraph":
        """A graph in a file that `save` or `write_csr` wrote: its edges stay there, and calls read
        them a page of rows at a time. See `PagedGraph`.

        Calls run on `device`: "cpu", or "cuda" or "cuda:N" for a GPU.

        Raises:
            FileNotFoundError: there is no file.
            InvalidFile: it was cut, altered, not written by Tiga, or by a newer version.
            InvalidValue: there is no such device.
        """
        from tiga.relations.paged import open_graph

        return open_graph(path, device)

    @staticmethod
    def write_csr(
        path: Any,
        edges: Iterable[Any],
        *,
        num_nodes: int | None = None,
        num_src: int | None = None,
        num_dst: int | None = None,
        fields: Any = None,
        memory: Any = "256MiB",
        overwrite: bool = False,
        progress: Any = False,
        sort_sources: bool = False,
    ) -> Path:
        """Write a graph's file from an edge list that need not fit in memory; returns the path.

        An interrupted call, even one that was killed, leaves what it read in a folder beside the
        path; the same call takes it up again, skipping the chunks it has, so `edges` must give the
        same chunks again.

        Args:
            edges: chunks `(src, dst)` or `(src, dst, {"name": field})` of arrays, of any lengths.
            num_nodes: the number of both sources and destinations; or pass `num_src` and `num_dst`.
            fields: node fields by namespace and name, `{"src": {"x": x}}`; numpy memory maps are
                read piece by piece.
            memory: bytes that sorting may take, beside 16 bytes per node.
            overwrite: replace a file that is there, at once when the new one is whole.
            progress: True for a bar on standard error, or a function of a text and a share.
            sort_sources: put the edges of each destination in order of their sources, with their
                fields; without, they stay in the order in which they came. Calls on a graph much
                larger than the budget, whose sources are far apart, then read it a few times less.

        Raises:
            InvalidIndex: an edge names a node that does not exist.
            InvalidValue, InvalidType: chunks that differ in their columns, or are none.
            InvalidState: another process writes the same file.
            OSError: the disk is full; the call can be repeated.

        Example:
            >>> import tempfile, tiga as tg
            >>> chunks = [([0, 2], [1, 0]), ([1], [1])]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     tg.Graph.open(tg.Graph.write_csr(folder + "/g", chunks, num_nodes=3)).num_edges
            3
        """
        from tiga.relations.writer import write_graph

        counts = num_nodes, num_src, num_dst
        return write_graph(path, edges, counts, fields, memory, overwrite, progress, sort_sources)
