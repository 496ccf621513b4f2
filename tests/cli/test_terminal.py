"""What is said on a terminal, and what goes into a pipe."""

from __future__ import annotations

import io

import pytest

from cli import terminal
from cli.table import Table


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_model_s_answer_is_shown_on_a_terminal_and_kept_in_a_pipe() -> None:
    answer = "red \x1b[31m alert\n"
    assert terminal.shown(answer, Screen()) == "red \\x1b[31m alert\n"
    assert terminal.shown(answer, io.StringIO()) == answer


def test_errors_lines_and_tables_send_no_escapes_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.say("worker \x1b[2J")
    terminal.complain("no path /\x1b]0;x\x07")
    table = Table("worker")
    table.add("decode\x1b[0m")
    table.print()
    assert "\x1b" not in screen.getvalue() and "\x07" not in screen.getvalue()
    assert screen.getvalue().count("\\x1b") == 3
