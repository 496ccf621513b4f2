"""A plain table on stdout: columns padded, nothing cut, easy on `grep` and `awk`."""

from __future__ import annotations

import sys

from cli.terminal import shown


class Table:
    """Rows under a heading. Cells are text; the last column is not padded."""

    def __init__(self, *heading: str) -> None:
        self._rows: list[tuple[str, ...]] = [heading]

    def add(self, *cells: str) -> None:
        """One row, as many cells as the heading has."""
        assert len(cells) == len(self._rows[0])
        self._rows.append(cells)

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self._rows
        )

    def print(self) -> None:
        """To stdout."""
        print(shown(str(self), sys.stdout), flush=True)
