"""Whether a text worker's process goes on, as the kernel sees it.

Who holds the interpreter inside a library could not say so himself, and is not at fault: so nobody
is asked. A process that works uses a core or stands in line for one. One that is stopped, or
sleeps over a task, does neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from cluster.errors import InternalError
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.own_lateness import SeenTimeout
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.silence import Silence

SILENCE_S = 2.5
"""Long enough for a page that comes from a disk; short enough for a chat that waits behind it."""


async def kill_when_silent(
    pid: int, has_task: Callable[[], bool], kill: Callable[[], None]
) -> None:
    """Never returns; cancel it when the process has ended. Raises InternalError when it was killed
    and is still there after KILL_TIMEOUT_S."""
    silence = Silence(SILENCE_S)
    before: SignsOfLife | None = None
    while True:
        await asyncio.sleep(silence.interval_s)
        now = SignsOfLife.of(pid)
        if now is None or _is_alive(now, before, has_task=has_task()):
            silence.heard()
        if silence.tick():
            kill()
            with suppress(TimeoutError):
                async with SeenTimeout(KILL_TIMEOUT_S, time.monotonic):
                    await asyncio.Event().wait()
            raise InternalError(f"the text worker {pid} stood still and cannot be killed")
        before = now


def _is_alive(now: SignsOfLife, before: SignsOfLife | None, *, has_task: bool) -> bool:
    """Without a task nothing is asked of it but that it could take one."""
    return now.show_work(before) if has_task else not now.is_stopped
