"""docs/cli.md is what the commands print."""

from __future__ import annotations

from pathlib import Path

from cli.inspect_commands import Listed
from tests.cli.inspect.transcripts import transcripts

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_shows_what_the_commands_print() -> None:
    wanted = "run python -m tests.cli.inspect.transcripts > docs/cli.md"
    assert PAGE.read_text() == transcripts(), wanted


def test_everything_that_is_listed_has_a_transcript() -> None:
    assert [what for what in Listed if f"splitserve get {what}" not in PAGE.read_text()] == []
