"""The part of docs/cli.md about configuration."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from cli.main import app

_CONTEXTS = """
## Named fleets

A context names a fleet: its router, its release on Kubernetes, the file with its join token, the
folder with its certificates. They are kept in `~/.config/splitserve/contexts.yaml` (or
`$XDG_CONFIG_HOME`, or `SPLITSERVE_CONTEXTS`), which only its owner may write. Every command that
asks a fleet takes `--context NAME`. A flag wins over a variable (`SPLITSERVE_GRPC`,
`SPLITSERVE_CONTEXT`, `SPLITSERVE_JOIN_TOKEN`, `SPLITSERVE_FLEET_TLS`), that over the context,
that over the default; what `--context` names wins over variables. `--grpc` without `--context`,
and `SPLITSERVE_GRPC` beside a context that is merely current, leave the context out altogether,
so that its token goes to no other address. Of several routers the first that listens is asked.
"""
_CONTEXT_WORDS = (
    (
        *("config", "set-context", "prod", "--router", "10.0.0.7:50052,10.0.0.8:50052"),
        *("--kubernetes", "llm/prod", "--join-token-file", "/run/secrets/prod-token"),
    ),
    ("config", "set-context", "lab", "--router", "127.0.0.1:50051"),
    ("config", "use-context", "prod"),
    ("config", "get-contexts"),
    ("config", "current-context"),
)


def config_transcripts() -> str:
    """In Markdown."""
    return _CONTEXTS + _transcripts(_CONTEXT_WORDS)


def _transcripts(shown: Sequence[tuple[str, ...]]) -> str:
    """In a folder that was empty before the first of them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SPLITSERVE_CONTEXTS", "contexts.yaml")
        patch.setenv("COLUMNS", "200")
        for name in ("CONTEXT", "GRPC", "JOIN_TOKEN", "FLEET_TLS", "CONFIG"):
            patch.delenv(f"SPLITSERVE_{name}", raising=False)
        return "".join(_transcript(words) for words in shown)


def _transcript(words: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (0, 1), done.output
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.output.rstrip()}\n```\n"
