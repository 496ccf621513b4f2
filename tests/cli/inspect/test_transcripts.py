"""docs/cli.md is what the commands print."""

from __future__ import annotations

from pathlib import Path

from cli.inspect_commands import Listed
from tests.cli.inspect.everyday import NOT_SHOWN
from tests.cli.inspect.transcripts import transcripts
from tests.cli.test_verbs import commands

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_shows_what_the_commands_print() -> None:
    wanted = "run python -m tests.cli.inspect.transcripts > docs/cli.md"
    assert PAGE.read_text() == transcripts(), wanted


def test_everything_that_is_listed_has_a_transcript() -> None:
    assert [what for what in Listed if f"splitserve get {what}" not in PAGE.read_text()] == []


def test_every_command_has_a_transcript_or_says_why_not() -> None:
    shown = [line[2:] + " " for line in PAGE.read_text().splitlines() if line.startswith("$ ")]
    missing = {
        name
        for name in commands()
        if not any(line.startswith(f"splitserve {name} ") for line in shown)
    }
    assert missing == set(NOT_SHOWN), "show it in tests/cli/inspect/everyday.py"
