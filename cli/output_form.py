"""How a command shows what it has found: to people, or to programs."""

from __future__ import annotations

from typing import Annotated

import typer

Output = Annotated[str, typer.Option("--output", "-o", metavar="table|json", help="form of data")]
ViewOutput = Annotated[
    str, typer.Option("--output", "-o", metavar="table|wide|json|yaml", help="form of data")
]
"""Of commands that show a `cli.view.View`."""
VIEW_FORMS = ("table", "wide", "json", "yaml")


def checked_form(output: str) -> str:
    """Raises typer.BadParameter."""
    return _one_of(("table", "json"), output)


def checked_view_form(output: str) -> str:
    """Raises typer.BadParameter."""
    return _one_of(VIEW_FORMS, output)


def _one_of(allowed: tuple[str, ...], output: str) -> str:
    if output not in allowed:
        raise typer.BadParameter(
            f"{output!r}; allowed: {', '.join(allowed)}", param_hint="--output"
        )
    return output
