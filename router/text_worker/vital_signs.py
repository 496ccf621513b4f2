"""Whether a text worker's process goes on, as the kernel sees it.

Who holds the interpreter inside a library could not say so himself, and is not at fault: so nobody
is asked. A process that works uses a core or stands in line for one. One that is stopped, or
sleeps over a task, does neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.process.silence import Silence

SILENCE_S = 2.5
"""Long enough for a page that comes from a disk; short enough for a chat that waits behind it."""
_STOPPED = "Tt"
_BUSY = "RD"


@dataclass(frozen=True, slots=True)
class Signs:
    """Of one moment."""

    state: str
    """The letter in /proc: R runs or could, S sleeps, D waits for a device, T is stopped."""
    cpu_ticks: int
    """Used so far, by all threads; hundredths of a second."""

    @classmethod
    def of(cls, pid: int) -> Signs | None:
        """None once the process is gone."""
        try:
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return cls(after_name[0], int(after_name[11]) + int(after_name[12]))

    def shows_life(self, before: Signs | None, *, has_task: bool) -> bool:
        """Without a task nothing is asked of it but that it could take one."""
        if not has_task:
            return self.state not in _STOPPED
        return self.state in _BUSY or before is None or self.cpu_ticks > before.cpu_ticks


async def kill_when_silent(
    pid: int, has_task: Callable[[], bool], kill: Callable[[], None]
) -> None:
    """Never returns; cancel it when the process has ended."""
    silence = Silence(SILENCE_S)
    before: Signs | None = None
    while True:
        await asyncio.sleep(silence.interval_s)
        now = Signs.of(pid)
        if now is None or now.shows_life(before, has_task=has_task()):
            silence.heard()
        if silence.tick():
            kill()
        before = now
