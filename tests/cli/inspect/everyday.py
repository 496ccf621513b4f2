"""The parts of docs/cli.md that are shown by commands as they are: what an operator types beside
looking at a fleet and changing it."""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.cli.inspect.asked_router import patch_asking
from tests.cli.inspect.fake_router import ADDRESS
from tests.cli.test_chat import FakeServer, serving

_KEPT = ("SPLITSERVE_CONTEXTS", "SPLITSERVE_GRPC", "SPLITSERVE_HOME")
_MOST_LINES = 5
_SHOWN: tuple[tuple[str, ...], ...] = (
    ("version",),
    ("status",),
    ("describe", "worker", "decode-0"),
    ("explain", "mine"),
    ("routes", "Once upon a time", "--max-tokens", "16"),
    ("chat", "--once", "Hello", "--max-tokens", "16"),
    ("adapters", "list"),
    ("adapters", "load", "poet", "poems/2"),
    ("adapters", "unload", "poet"),
    ("keys", "create", "acme", "--file", "keys.json", "--requests-per-minute", "90"),
    ("keys", "list", "--file", "keys.json"),
    ("keys", "revoke", "ID", "--file", "keys.json"),
    ("models", "list"),
    ("models", "show", "smollm2", "--memory", "330MiB"),
    ("config", "schema", "router"),
    ("config", "set-context", "old", "--router", "10.0.0.9:50052"),
    ("config", "delete-context", "old"),
    ("completion", "bash"),
    ("support-bundle", "--no-doctor", "-o", "bundle.tar.gz"),
)
"""In this order: a key is made before it is listed and revoked."""
NOT_SHOWN = {
    "serve": "a fleet: README.md and docs/operations.md",
    "router": "a process",
    "prefill-worker": "a process",
    "decode-worker": "a process",
    "planner": "a process",
    "quality": "minutes, with a real model: docs/models.md",
    "models pull": "a hub",
}
"""Commands without a transcript, and why."""
_CHANGING = (
    (r"sk-[\w-]+", "sk-…"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-24 18:00"),
    (r"\d+ files, [\d.]+ \w+", "20 files, 28 KiB"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8000"),
)
_ID = "5c1e0a77"
"""In place of the key's own."""
_CUT = frozenset({"describe worker", "models show", "config schema", "completion bash"})
"""Of which the first lines are enough."""


def everyday_transcripts() -> dict[str, str]:
    """In Markdown, by the command: of `config` by its own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        home = os.environ.get("SPLITSERVE_HOME")
        for name in [name for name in os.environ if name.startswith("SPLITSERVE_")]:
            patch.delenv(name)
        patch.chdir(folder)
        patch.setenv("SPLITSERVE_CONTEXTS", "contexts.yaml")
        patch.setenv("SPLITSERVE_GRPC", ADDRESS)
        patch.setenv("COLUMNS", "200")
        patch_asking(patch)
        found: defaultdict[str, str] = defaultdict(str)
        with serving() as server:
            for words in _SHOWN:
                name = " ".join(words[: 2 if words[0] == "config" else 1])
                found[name] += _transcript(words, server, home)
        return dict(found)


def _transcript(words: tuple[str, ...], server: FakeServer, home: str | None) -> str:
    key = _key_of(Path("keys.json"))
    given = [key if word == "ID" else word for word in words]
    given += ["--url", server.url] if words[0] == "chat" else []
    with pytest.MonkeyPatch.context() as patch:
        if words[:2] != ("models", "show"):
            patch.setenv("SPLITSERVE_HOME", "home")
        elif home is not None:
            patch.setenv("SPLITSERVE_HOME", home)
        done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, (words, done.exit_code, done.output, done.exception)
    lines = _steady(done.output, key or _key_of(Path("keys.json"))).rstrip().splitlines()
    if " ".join(words[:2]) in _CUT:
        lines = [*lines[:_MOST_LINES], "..."]
    return "\n".join(("\n```", f"$ splitserve {_typed(words)}", *lines, "```\n"))


def _typed(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' if " " in word else word for word in words]
    return " ".join(quoted).replace(" ID ", f" {_ID} ")


def _steady(text: str, key: str) -> str:
    """Without what is another one each time."""
    text = text.replace(key, _ID) if key else text
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return text


def _key_of(path: Path) -> str:
    """Empty where there is none."""
    found = re.search(r'"id": ?"(\w+)"', path.read_text()) if path.exists() else None
    return "" if found is None else found[1]
