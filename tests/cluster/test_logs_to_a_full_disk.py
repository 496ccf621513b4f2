"""A process whose own log cannot be written goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
from cluster.logs import configure_logging, get_logger
configure_logging("tested")
for number in range(1000):
    get_logger("test").error("said", number=number)
print("went on")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", SOURCE], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.stdout == b"went on\n"
