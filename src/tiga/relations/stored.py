"""What every graph offers about files: saving, opening, writing edge lists larger than memory."""

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
    def open(path: Any) -> "PagedGraph":
        """A graph in a file that `save` or `write_csr` wrote: its edges stay there, and calls read
        them a page of rows at a time. See `PagedGraph`.

        Raises:
            FileNotFoundError: there is no file.
            InvalidFile: it was cut, altered, not written by Tiga, or by a newer version.
        """
        from tiga.relations.paged import open_graph

        return open_graph(path)
