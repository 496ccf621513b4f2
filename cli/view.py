"""What a command has found, once: its data for programs, and tables of it for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from cli.json_output import as_json, as_yaml
from cli.table import Table
from cli.terminal import shown


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table; its last `num_wide` columns are for `-o wide` alone."""

    heading: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    num_wide: int = 0
    title: str = ""
    """A line above it."""

    def text(self, *, wide: bool) -> str:
        """Without a heading where there are no rows."""
        width = len(self.heading) if wide else len(self.heading) - self.num_wide
        table = Table(*self.heading[:width])
        for row in self.rows:
            table.add(*row[:width])
        lines = [self.title] if self.title else []
        return "\n".join(lines + ([str(table)] if self.rows else []))


@dataclass(frozen=True, slots=True)
class View:
    """`data` is what JSON and YAML can hold; the tables say the same, shorter."""

    data: object
    sheets: list[Sheet] = field(default_factory=list)
    nothing: str = "nothing"
    """Said to people where no table has a row."""

    def text(self, form: str) -> str:
        """In a form of `output_form.VIEW_FORMS`."""
        if form == "json":
            return as_json(self.data)
        if form == "yaml":
            return as_yaml(self.data)
        told = [text for sheet in self.sheets if (text := sheet.text(wide=form == "wide"))]
        return "\n\n".join(told) or self.nothing

    def print(self, form: str) -> None:
        """To stdout."""
        print(shown(self.text(form), sys.stdout), flush=True)
