"""Runs `python -m cli` as a process, without the caller's options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0
NO_CONTEXTS = "/no/such/contexts.yaml"
"""Whoever runs the tests may have a current one."""


def clean_environ(**more: str) -> dict[str, str]:
    """This environment without SPLITSERVE_*, contexts and colours, plus `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPLITSERVE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "SPLITSERVE_CONTEXTS": NO_CONTEXTS, **more}


def cli(
    *words: str,
    environ: dict[str, str] | None = None,
    text: str = "",
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """The finished command; `text` is its stdin."""
    return subprocess.run(
        [sys.executable, "-m", "cli", *words],
        cwd=ROOT,
        env=environ or clean_environ(),
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
