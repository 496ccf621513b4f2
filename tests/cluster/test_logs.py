"""What packages say that know only the standard library's logging."""

from __future__ import annotations

import json
import subprocess
import sys

SOURCE = """
import logging
from cluster.logs import configure_logging
configure_logging("decode-0/engine")
kernels = logging.getLogger("splitserve.kernels")
kernels.debug("compiled %s", "one.cpp")
kernels.warning("CPU kernels run on torch: %s", "no compiler")
logging.getLogger("splitserve").error("%d", "no number")
try:
    raise OSError("the disk is full")
except OSError:
    kernels.exception("not built")
"""


def test_a_warning_of_the_kernels_is_a_line_that_the_operator_is_shown() -> None:
    done = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b"{")]
    warning, failure = lines
    assert warning["event"] == "CPU kernels run on torch: no compiler"
    assert (warning["level"], warning["component"]) == ("warning", "kernels")
    assert warning["process"] == "decode-0/engine"
    assert failure["level"] == "error" and "the disk is full" in failure["exception"]
    assert not done.stdout
