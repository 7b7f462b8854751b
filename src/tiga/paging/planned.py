"""Arrays as plans see them: their sizes, and whether kernels can address them where they are."""

from dataclasses import dataclass

from tiga.runtime.pages import FileRows, Rows


@dataclass(frozen=True)
class PlannedRows:
    """Rows that are not there yet, or not to be looked at: plans ask for nothing but these."""

    count: int
    row_bytes: int
    in_file: bool
    address: int
    is_cached: bool = True

    @staticmethod
    def like(rows: Rows) -> "PlannedRows":
        """What plans ask of rows."""
        cached = not isinstance(rows, FileRows) or rows.is_cached
        return PlannedRows(rows.count, rows.row_bytes, rows.in_file, rows.address, cached)

    @staticmethod
    def of(count: int, row_bytes: int, in_file: bool) -> "PlannedRows":
        """Rows in a file, or one after the other in memory."""
        return PlannedRows(count, row_bytes, in_file, 0 if in_file else 1)
