"""The longest that a process may take over its own end: then it is gone, whatever hangs.

    begin -> it ends by itself in time
          '- limit_s: a line that says where it stands -> its groups are killed -> os._exit(1)
             and LOCKED_S later, without a line, where the interpreter's lock is not given up

A close may hang in a library (a transport, a socket, a driver), with the event loop inside it. Half
of such a process would still be there: its port, its memory, its signs of life.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time

from cluster.log_writer import STANDARD_ERROR
from cluster.logs import get_logger
from cluster.process.background import Background, Loss
from cluster.process.child_groups import OWN_GROUPS
from cluster.process.stall_watch import stack_of

LOCKED_S = 2.0
_log = get_logger("process")


class EndLimit:
    """One per process, since what it ends is the process."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._has_begun = False
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        self._background = Background(_go_on)

    def begin(self, cause: str) -> None:
        """The end has begun, because of `cause`; the first call counts. From the loop's thread."""
        if self._has_begun:
            return
        self._has_begun = True
        loop_thread = threading.get_ident()
        self._background.thread("end-limit", lambda: self._end_late(cause, loop_thread))
        faulthandler.dump_traceback_later(
            self._limit_s + LOCKED_S, exit=True, file=self._nowhere
        )  # a thread of C, which waits for no lock

    def _end_late(self, cause: str, loop_thread: int) -> None:
        time.sleep(self._limit_s)
        _log.error(
            "the process does not come to its end by itself",
            cause=cause,
            waited_s=self._limit_s,
            stands_at=stack_of(loop_thread),
        )
        STANDARD_ERROR.flush()
        OWN_GROUPS.kill()
        os._exit(1)


def _go_on(loss: Loss) -> None:
    """The other limit, which needs no thread of ours, holds."""
