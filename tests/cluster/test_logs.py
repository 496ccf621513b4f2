"""What packages say that know only the standard library's logging."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.log_line import as_json

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
    warning, _unformatted, failure = lines
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

kernels.info("hidden %s", Broken())
kernels.info("went on")
"""


def test_whatever_a_package_logs_it_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", STRANGE], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b"{")]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("of level 25", "info"),
        ("of level 60", "critical"),
        ("a line of the log could not be put into words", "error"),
        ("went on", "info"),
    ]


def test_what_cannot_be_put_into_words_is_one_line_as_any_other() -> None:
    done = subprocess.run([sys.executable, "-c", STRANGE], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    [told] = [line for line in lines if "could not" in line["event"]]
    assert (told["component"], told["format"]) == ("kernels", "hidden %s")
    assert (told["reason"], told["process"]) == ("ZeroDivisionError", "decode-0")


FULL_PIPE = """
import logging, os, sys
from cluster.logs import configure_logging
configure_logging("decode-0")
read, write = os.pipe()
os.dup2(write, 2)
os.set_blocking(write, False)
try:
    while True:
        os.write(write, bytes(4096))
except BlockingIOError:
    os.set_blocking(write, True)
logging.getLogger("splitserve.kernels").error("%d", "no number")
print("went on", flush=True)
os._exit(0)
"""


def test_what_cannot_be_put_into_words_waits_for_no_reader() -> None:
    """A reader that never comes: whoever waited for it would wait for ever."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_PIPE], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"went on\n"


@pytest.mark.parametrize(
    "value",
    ["\x9b2J\u202e ü", "line\nfeed", 2**80, 1.5, None, [1, {"a": (2, 3)}], Path("/a"), "\ud800"],
    ids=repr,
)
def test_every_value_is_the_same_line_as_the_standard_library_makes_and_ascii(value: Any) -> None:
    event = {"event": "seen", "value": value}
    line = as_json(event)
    assert line.isascii()
    assert json.loads(line) == json.loads(json.dumps(event, default=repr))
