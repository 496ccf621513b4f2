"""How far a process steps back for others on busy cores.

Niceness alone is not enough on Linux. Where autogroups are on (most distributions, outside of
cgroups), the kernel shares cores between sessions first, and niceness counts among the processes of
one session only. Every engine leads a session of its own, so its session's niceness has to be set
as well: a prefill engine with niceness 10 took as much of a core as the decode engine beside it,
and p99 of the streams' gaps was four times the quiet one.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import structlog

_AUTOGROUP = Path("/proc/self/autogroup")
_TRIES, _PAUSE_S = 20, 0.15
"""The kernel lets unprivileged processes of a whole machine set this ten times a second."""

_log = structlog.get_logger()


def step_back(niceness: int, *, autogroup: Path = _AUTOGROUP) -> None:
    """Lowers this process's priority by `niceness`, 0 to 19, and its session's if it leads one.

    Call it before any thread is started: threads inherit it. A session that somebody else leads is
    left alone, since its other processes have not asked for it.
    """
    own = os.nice(niceness)
    if niceness and os.getsid(0) == os.getpid() and autogroup.exists():
        _set_autogroup(own, autogroup)


def step_up_to_parent() -> None:
    """Gives the calling thread, and what it starts from then on, the priority of this process's
    parent, where the kernel lets it: root, or CAP_SYS_NICE."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))


def _set_autogroup(niceness: int, autogroup: Path) -> None:
    for _ in range(_TRIES):
        try:
            autogroup.write_text(str(niceness))
            return
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError as cause:
            _log.warning(
                "the priority of this process's session cannot be lowered", reason=str(cause)
            )
            return
    _log.warning(
        "the priority of this process's session cannot be lowered",
        reason="the kernel says try again",
    )
