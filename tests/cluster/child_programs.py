"""Small programs that play a fleet's processes, and a launcher's view of them."""

from __future__ import annotations

import sys

from cluster.launcher.protocol import ProcessSpec

_PRELUDE = """
import json, os, signal, subprocess, sys
def report(kind, **fields):
    line = json.dumps({"type": kind, **fields}) + "\\n"
    os.write(int(os.environ["SPLITSERVE_REPORT_FD"]), line.encode())
def ready():
    report("ready", address="127.0.0.1:1", facts={"transport": "loopback"})
"""

SERVES_UNTIL_SIGTERM = "report('progress', phase='loading', fraction=0.5); ready(); signal.pause()"
LIVES_UNTIL_STOPPED = "report('alive'); ready(); os.kill(os.getpid(), signal.SIGSTOP)"
LIVES_ON = """
ready()
import threading
while not threading.Event().wait(0.05):
    report('alive')
"""
NEVER_READY = "report('progress', phase='odd', fraction=0.5); signal.pause()"
IGNORES_SIGTERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile 1: signal.pause()"
REPORTS_FAILURE = "report('failed', code='disk_full', message='1 byte free, 2 needed'); sys.exit(1)"
RAISES = "import nothing_of_that_name"
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
DIES_WHEN_READY = "ready(); sys.exit(7)"
STARTS_ANOTHER = """
other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
report("ready", address="127.0.0.1:1", facts={"other": str(other.pid)})
signal.pause()
"""


def program(source: str, *, name: str = "child") -> ProcessSpec:
    """A process that runs `source` with `report` and `ready` at hand."""
    return ProcessSpec(name=name, argv=(sys.executable, "-c", _PRELUDE + source))
