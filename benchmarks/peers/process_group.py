"""A program of several processes that can be held still while another has its turn."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from cluster.options import without_options

STOP_TIMEOUT_S = 30.0


class ProcessGroup:
    """Started in a session of its own, so that signals reach all of its processes."""

    def __init__(
        self, command: Sequence[str], *, log: Path, env: dict[str, str], cwd: Path | None = None
    ) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**without_options(os.environ), **env},
                cwd=cwd,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    @property
    def stdin(self) -> IO[str]:
        """Of the first process."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[str]:
        """Of the first process."""
        assert self.process.stdout is not None
        return self.process.stdout

    def freeze(self) -> None:
        """None of its threads runs until `thaw`."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Goes on."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def peak_bytes(self) -> int:
        """Sum of the processes' largest resident sizes so far; shared pages count in each."""
        peak = 0
        for process in self._members():
            status = Path(f"/proc/{process.pid}/status").read_text()
            line = next((x for x in status.splitlines() if x.startswith("VmHWM:")), "VmHWM: 0")
            peak += int(line.split()[1]) * 1024
        return peak

    def stop(self) -> None:
        """Asks, then ends it."""
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(STOP_TIMEOUT_S)
        self.stdin.close()
        self.stdout.close()

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-2000:]

    def _members(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]
