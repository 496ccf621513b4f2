"""Processes on this machine, each in a session of its own.

    launch -> running -> (stop) -> ended      the group is swept: nothing it started is left

A child's stdin is what its spec says, its output goes through `ChildOutput`, its start reports come
over a pipe. A terminal's Ctrl-C reaches the supervisor only; when the supervisor is killed, the
kernel ends the children (`cluster/process/parent_death.py`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from cluster.errors import ConfigError
from cluster.launcher.output import ChildOutput, ProcessOutput
from cluster.launcher.protocol import ProcessExit, ProcessSpec
from cluster.options import without_options
from cluster.process.background import Background, cancel
from cluster.process.exit_watch import exit_of
from cluster.process.parent_death import PARENT_PID
from cluster.process.pipe import MAX_LINE_BYTES, Lines, reading
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.startup import REPORT_FD, ProcessReport, parse_report

OnProcessWarning = Callable[[str, str, str], None]
"""Called with (process name, level, text)."""

_OUTPUT_GRACE_S = 2.0


class LocalProcess:
    """A child of this process; see `ProcessHandle` for what is promised."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        report_pipe: IO[bytes],
        output: ProcessOutput,
        log: str,
    ) -> None:
        self._child = child
        self._output = output
        self._log = log
        self._reports: asyncio.Queue[ProcessReport | None] = asyncio.Queue()
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._background = Background(lambda loss: None)
        self._background.once(f"process {child.pid}", self._follow(report_pipe))

    @property
    def pid(self) -> int:
        """Of the child; also of its session and process group."""
        return self._child.pid

    async def reports(self) -> AsyncIterator[ProcessReport]:
        """Lines that are not reports are skipped."""
        while (report := await self._reports.get()) is not None:
            yield report

    async def wait(self) -> ProcessExit:
        """The child's end; its group has been killed by then."""
        return await asyncio.shield(self._ended)

    def signs_of_life(self) -> SignsOfLife | None:
        """None when it has just ended."""
        return SignsOfLife.of_main_thread(self.pid)

    def stop(self, *, at_once: bool = False) -> None:
        """SIGTERM to the child, or SIGKILL to its group."""
        if self._ended.done():
            return
        if at_once:
            self._kill_group()
        else:
            self._ask()

    async def _follow(self, report_pipe: IO[bytes]) -> None:
        """To its end, which is told whatever happens here."""
        try:
            await self._read_until_exit(report_pipe)
        finally:
            self._kill_group()
            self._reports.put_nowait(None)
            status = self._child.poll()  # None only where this code failed
            self._ended.set_result(
                ProcessExit(
                    status=-signal.SIGKILL if status is None else status,
                    tail=self._output.tail,
                    log=self._log,
                )
            )

    async def _read_until_exit(self, report_pipe: IO[bytes]) -> None:
        assert self._child.stdout is not None
        async with reading(self._child.stdout) as printed, reading(report_pipe) as reports:
            following = [
                self._background.once(f"output of {self.pid}", self._output.follow(printed)),
                self._background.once(f"reports of {self.pid}", self._collect(reports)),
            ]
            await exit_of(self._child, before_reaping=self._kill_group)
            await asyncio.wait(following, timeout=_OUTPUT_GRACE_S)
            await cancel(following)  # somebody who left the group still holds the pipe

    def _ask(self) -> None:
        """`send_signal` would reap a child that has ended, before its group is killed."""
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def _kill_group(self) -> None:
        """Once the child is reaped its pid, and that of the group, may be another's."""
        if self._child.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _collect(self, pipe: asyncio.StreamReader) -> None:
        lines = Lines()
        while chunk := await pipe.read(MAX_LINE_BYTES):
            for line in lines.take(chunk):
                with suppress(msgspec.DecodeError):
                    self._reports.put_nowait(parse_report(line))
        self._reports.put_nowait(None)


class LocalLauncher:
    """Starts children of this process. `log_dir`, if any, holds one NAME.log per process."""

    def __init__(self, *, log_dir: Path | None, on_warning: OnProcessWarning) -> None:
        self._log_dir = log_dir
        self._on_warning = on_warning

    async def launch(self, spec: ProcessSpec) -> LocalProcess:
        """Starts the program. Raises ConfigError when it does not exist or may not be run."""
        log = None if self._log_dir is None else self._log_dir / f"{spec.name}.log"
        output = ChildOutput(log, lambda level, text: self._on_warning(spec.name, level, text))
        return start_process(spec, without_options(os.environ), output, log=str(log or ""))

    async def until_lost(self) -> None:
        """See Launcher. This machine is lost with us."""
        await asyncio.Event().wait()


def start_process(
    spec: ProcessSpec, environ: Mapping[str, str], output: ProcessOutput, *, log: str = ""
) -> LocalProcess:
    """A child of this process and of the calling thread, which must live as long as it: the kernel
    ends the child with that thread. From a running event loop. `environ`: below the spec's own.

    Raises ConfigError when the program does not exist or may not be run.
    """
    try:
        read_end, write_end = os.pipe()
    except OSError as cause:
        raise ConfigError(f"{spec.name} cannot be started: {cause.strerror}") from cause
    named = {REPORT_FD: str(write_end), PARENT_PID: str(os.getpid())}
    try:
        child = _spawn(spec, {**environ, **spec.environ, **named}, write_end)
    except OSError as cause:
        os.close(read_end)
        raise ConfigError(
            f"{spec.name} cannot be started: {spec.argv[0]}: {cause.strerror}"
        ) from cause
    finally:
        os.close(write_end)
    return LocalProcess(child, os.fdopen(read_end, "rb"), output, log)


def _spawn(
    spec: ProcessSpec, environ: Mapping[str, str], write_end: int
) -> subprocess.Popen[bytes]:
    with _file_of(spec.stdin) as stdin:
        return subprocess.Popen(
            spec.argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            pass_fds=(write_end,),
            start_new_session=True,
        )


def _file_of(content: bytes) -> IO[bytes]:
    """To be read from its start. A pipe would take 64 KiB and then hold whoever writes."""
    if not content:
        return open(os.devnull, "rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's
    file.write(content)
    file.seek(0)
    return file
