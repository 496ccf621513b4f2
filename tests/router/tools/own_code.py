"""Asks the families' own code, which `make test` fetches, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_FOLDER = "SPLITSERVE_FAMILY_CODE"
"""Where `make test` has put the packages of family_code.txt."""
_ASKED = Path(__file__).with_name("family_code.py")


def own_code() -> Path:
    """Its folder. Skips the test where nobody has fetched it."""
    folder = os.environ.get(_FOLDER)
    if folder is None or not Path(folder).is_dir():
        pytest.skip("the families' own code is not here; `make test` fetches it")
    return Path(folder)


def told_by(family: str, verb: str, requests: Sequence[dict[str, Any]]) -> list[Any]:
    """What it makes of each; see family_code.py. The name of an error stands for none."""
    environ = {**os.environ, "PYTHONPATH": str(own_code())}
    done = subprocess.run(
        [sys.executable, str(_ASKED), family, verb],
        input=json.dumps(requests),
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    assert len(answers) == len(requests)
    return answers
