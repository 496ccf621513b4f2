"""Every command is told, in one chapter, and the page has the same chapters in the same order."""

from __future__ import annotations

import re

import typer

from cli.help_chapters import CHAPTERS
from cli.main import app
from tests.cli.run_cli import ROOT, cli
from tests.cli.test_verbs import commands

PAGE = (ROOT / "docs" / "cli.md").read_text()
ALL = [name for names in CHAPTERS.values() for name in names]


def test_every_command_is_in_one_chapter() -> None:
    group = typer.main.get_command(app)
    assert sorted(ALL) == sorted(group.commands)  # type: ignore[attr-defined]
    assert {name.split()[0] for name in commands()} == set(ALL)


def test_help_tells_chapters_and_their_commands_in_order_and_what_each_does_in_one_column() -> None:
    said = cli("--help").stdout
    titles = re.findall(r"^(\S.*):$", said, re.MULTILINE)
    assert titles[-len(CHAPTERS) :] == list(CHAPTERS)
    told = said[said.index(f"\n{next(iter(CHAPTERS))}:") :]
    rows = re.findall(r"^  (\S+)( +)\S", told, re.MULTILINE)
    assert [name for name, _ in rows] == ALL
    assert len({len(name + gap) for name, gap in rows}) == 1


def test_the_page_has_these_chapters_and_shows_commands_in_their_order() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    texts = re.split(r"^## .*$", PAGE, flags=re.MULTILINE)
    assert titles == list(CHAPTERS)
    for (title, names), text in zip(CHAPTERS.items(), texts[1:], strict=True):
        shown = list(dict.fromkeys(re.findall(r"^\$ splitserve (\S+)", text, re.MULTILINE)))
        assert shown == [name for name in names if name in shown], title
        assert [name for name in names if name not in shown and f"`{name}`" not in text] == []
