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


STRANGE = """
import logging
from cluster.logs import configure_logging
configure_logging("decode-0", level="debug")
kernels = logging.getLogger("splitserve.kernels")
for level in (5, 25, 60):
    kernels.log(level, "of level %d", level)

class Broken:
    def __str__(self):
        return str(1 / 0)

kernels.info("%s", Broken())
kernels.info("went on")
"""


def test_whatever_a_package_logs_it_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", STRANGE], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b"{")]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("of level 25", "info"),
        ("of level 60", "critical"),
        ("went on", "info"),
    ]
    assert b"ZeroDivisionError" in done.stderr
