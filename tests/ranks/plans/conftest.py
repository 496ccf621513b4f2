"""Where a conductor listens: in a folder, or over TCP with keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ranks.channels import Channels


@pytest.fixture(params=["ipc", "tcp"])
def channels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Channels]:
    made = Channels(tmp_path if request.param == "ipc" else "127.0.0.1")
    yield made
    made.close()
