"""What strangers send, before a terminal sees it."""

from __future__ import annotations

import pytest

from cluster import logs
from cluster.terminal_text import plain

RETITLE = "\x1b]0;owned\x07"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert plain(f"a{RETITLE}b\x9b2J\r\x7f") == "a\\x1b]0;owned\\x07b\\x9b2J\\x0d\\x7f"


def test_lines_tabs_and_every_script_stay_as_they_are() -> None:
    text = "one\n\ttwo é 語 😀"
    assert plain(text) == text


def test_a_log_line_on_a_terminal_obeys_no_client(capsys: pytest.CaptureFixture[str]) -> None:
    """A path comes percent-decoded: `GET /%1b]0;owned%07`."""
    event = logs._plain_texts(None, "info", {"event": "request refused", "path": f"/{RETITLE}"})
    assert event == {"event": "request refused", "path": "/\\x1b]0;owned\\x07"}
