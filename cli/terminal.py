"""Words for the operator: data to stdout, everything else to stderr, colour where it is seen."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, TextIO

import typer

from cli.exit_code import ExitCode
from cluster.terminal_text import plain


def wants_color(stream: TextIO) -> bool:
    """On a terminal, unless --no-color, $NO_COLOR or TERM=dumb say otherwise."""
    quiet = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not quiet


def paint(text: str, stream: TextIO, *, fg: str | None = None, dim: bool = False) -> str:
    """`text` in a colour, or as it is."""
    return typer.style(text, fg=fg, dim=dim) if wants_color(stream) else text


def shown(text: str, stream: TextIO) -> str:
    """On a terminal without control characters, elsewhere as it is."""
    return plain(text) if stream.isatty() else text


def say(text: str, *, dim: bool = False) -> None:
    """A line on stderr."""
    text = shown(text, sys.stderr)
    print(paint(text, sys.stderr, dim=dim), file=sys.stderr, flush=True)


def complain(message: str, *, remedy: str = "") -> None:
    """One error: its cause, and what helps."""
    lines = [paint("error: ", sys.stderr, fg="red") + shown(message, sys.stderr)]
    lines += [paint("  try: ", sys.stderr, fg="green") + remedy] if remedy else []
    print("\n".join(lines), file=sys.stderr, flush=True)


def give_up(message: str, *, remedy: str = "", code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Complains and ends the command."""
    complain(message, remedy=remedy)
    raise typer.Exit(code)
