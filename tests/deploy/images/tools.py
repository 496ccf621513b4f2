"""Programs that build and run images, and what to do where they are not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.run_program import output_of, run_program

_ASKED = "SPLITSERVE_TEST_IMAGES"
"""Set by `make test-images`, to a folder for images: what it asks for may not be skipped."""
USUAL_S = 300.0 * PATIENCE
"""For what neither builds nor fetches."""
_TOOLS = ("debootstrap", "buildah", "podman", "runc")


def images_folder() -> Path | None:
    """None: wherever."""
    asked = os.environ.get(_ASKED)
    return Path(asked).absolute() if asked else None


def need_tools() -> None:
    """Skips where images cannot be built; fails where somebody has asked for that."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if os.geteuid() != 0:
        missing.append("root")
    if not missing:
        return
    why = f"images need {', '.join(missing)}: make test-images"
    if images_folder() is None:
        pytest.skip(why)
    pytest.fail(why)


def run(command: Sequence[str | Path], *, limit_s: float = USUAL_S) -> str:
    """What it prints; a failure fails the test with the last of what it says."""
    return output_of(run_program(command, limit_s=limit_s))
