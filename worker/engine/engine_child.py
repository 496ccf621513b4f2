"""The operating system's side of an engine: started, its log passed on, its end noticed.

start -> runs -> `ended`: how, and the last line of its log; what it had started is gone, too
           '- killed, and not gone in time: `ended`, though a driver still keeps it
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from cluster.launcher.ray.own_group import environ_of_own_group
from cluster.log_writer import STANDARD_ERROR
from cluster.logs import get_logger
from cluster.process.background import Background, Loss, cancel
from cluster.process.child_groups import OWN_GROUPS
from cluster.process.exit_watch import KILL_TIMEOUT_S, exit_of
from cluster.process.exit_words import exit_in_words
from cluster.process.own_python import module_argv, module_environ
from cluster.process.parent_death import PARENT_PID
from cluster.process.pipe import reading
from cluster.process.startup import REPORT_FD
from engine.contract.environ import TORCH_ENVIRON

_OUTPUT_GRACE_S = 0.2
"""For the log of a process that has ended: its last lines are in the pipe already."""
_TAIL_BYTES = 4096
_log = get_logger("worker.engine")


class EngineChild:
    """One process, started once. All calls from the event loop's thread, which must outlive the
    child: Linux ends the child with the thread that started it."""

    def __init__(self, entry_module: str, launch_file: Path) -> None:
        """`launch_file` is its standard input."""
        self._child = _spawn(entry_module, launch_file)
        OWN_GROUPS.add(self._child.pid)
        self._why: str | None = None
        self._is_killed = False
        self._tail = b""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_drained = asyncio.Event()
        """All that it wrote was passed on."""
        self._background = Background(self._on_loss)
        self._background.need("engine process", self._watch())

    @property
    def pid(self) -> int:
        """Of the process, and of the group that it leads."""
        return self._child.pid

    def kill(self, why: str | None = None) -> None:
        """Ends it and what it started, now; `why` then stands in `ended`. Idempotent."""
        if self.ended.done():
            return
        self._why = self._why or why
        self._signal_group()
        if not self._is_killed:
            self._is_killed = True
            self._background.once("end of a killed engine", self._await_death())

    async def _await_death(self) -> None:
        """A process that a driver keeps in the kernel outlives SIGKILL: it is given up, so that
        this worker ends and another one is started."""
        await asyncio.wait((self.ended,), timeout=KILL_TIMEOUT_S)
        if not self.ended.done():
            _log.error("the engine process cannot be killed; it may still hold its memory")
            self.ended.set_result(
                f"the engine process {self._why or 'was to end'} and cannot be killed"
            )

    async def _watch(self) -> None:
        assert self._child.stderr is not None
        async with reading(self._child.stderr) as log:
            relay = self._background.keep("log of an engine", lambda: self._relay(log))
            code = await exit_of(self._child, before_reaping=self._sweep)
            with contextlib.suppress(TimeoutError):  # who left the group holds on
                async with asyncio.timeout(_OUTPUT_GRACE_S):  # wait_for may swallow our cancel
                    await self._is_drained.wait()
            await cancel((relay,))
        if not self.ended.done():
            self.ended.set_result(self._describe_end(code))
        await asyncio.Event().wait()  # until `close`: the end has been told

    async def close(self) -> None:
        """Once it has ended, or was given up."""
        await self._background.close()

    async def _relay(self, log: asyncio.StreamReader) -> None:
        """Passes the log on; what cannot be written anywhere is lost, so that the engine is not.
        Never returns."""
        while chunk := await log.read(_TAIL_BYTES):
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            STANDARD_ERROR.write(chunk)
        self._is_drained.set()
        await asyncio.Event().wait()

    def _on_loss(self, loss: Loss) -> None:
        self._signal_group()
        if not self.ended.done():
            self.ended.set_result(str(loss))

    def _sweep(self) -> None:
        """The engine has ended; what it had started goes, too."""
        self._signal_group()
        OWN_GROUPS.remove(self.pid)

    def _signal_group(self) -> None:
        """Once the engine is reaped its pid, and that of the group, may be another's."""
        if self._child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _describe_end(self, exit_code: int) -> str:
        if self._why is not None:
            return f"the engine process {self._why} and was ended"
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "it wrote no message")
        return f"the engine process ended ({exit_in_words(exit_code)}): {last}"


def _spawn(entry_module: str, launch_file: Path) -> subprocess.Popen[bytes]:
    environ = {**TORCH_ENVIRON, **os.environ, **environ_of_own_group(), **module_environ()}
    environ[PARENT_PID] = str(os.getpid())
    environ.pop(REPORT_FD, None)  # the server reports for both
    with launch_file.open("rb") as launch:
        return subprocess.Popen(
            module_argv(entry_module),
            stdin=launch,
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,  # a signal for the server's terminal is not for the engine
        )
