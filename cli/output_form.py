"""How a command shows what it has found: to people, or to programs."""

from __future__ import annotations

from typing import Annotated

import typer

Output = Annotated[str, typer.Option("--output", "-o", metavar="table|json", help="form of data")]


def checked_form(output: str) -> str:
    """Raises typer.BadParameter."""
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r}; allowed: table, json", param_hint="--output")
    return output
