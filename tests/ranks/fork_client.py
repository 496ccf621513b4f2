"""Forks of a process that has imported everything, in place of children that import it themselves.

For tests of what ranks do; those of how a rank's process starts and ends take such children.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import BinaryIO

import msgspec

from cluster.process.own_python import module_argv, module_environ
from cluster.process.parent_death import PARENT_PID
from tests.ranks.fork_server import EXIT_CODE, PID, ForkOrder

LIMIT_S = 60.0
"""For the server's end."""


class ForkedChild:
    """A RankChild that is the server's; its end is told by a pipe."""

    def __init__(self, pid: int, stdin: BinaryIO, stderr: BinaryIO, *, told: int) -> None:
        """`told`: the descriptor that its exit code comes from; the child's from here on."""
        self.pid, self.stdin, self.stderr = pid, stdin, stderr
        self._told = told
        self._exit_code: int | None = None
        self._turn = Lock()
        """Several threads may ask at once, and one of them reads and closes."""

    @property
    def returncode(self) -> int | None:
        """As `poll` or `wait` have found it."""
        return self._exit_code

    def poll(self) -> int | None:
        """See RankChild."""
        with self._turn:
            if self._exit_code is None and select.select([self._told], [], [], 0)[0]:
                told = os.read(self._told, EXIT_CODE.size)
                os.close(self._told)
                # without a word: the server has ended, and the kernel has killed its children
                self._exit_code = EXIT_CODE.unpack(told)[0] if told else -signal.SIGKILL
            return self._exit_code

    def kill(self) -> None:
        """See RankChild."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """See RankChild."""
        if self._exit_code is None:
            select.select([self._told], [], [], timeout)
        exit_code = self.poll()
        if exit_code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or math.inf)
        return exit_code


class ForkClient:
    """The test's side of a fork server, which ends with this process."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                module_argv("tests.ranks.fork_server", str(theirs.fileno())),
                env=dict(os.environ) | module_environ(),
                pass_fds=(theirs.fileno(),),
            )

    def begin(
        self, module: str, environ: Mapping[str, str], *, leads_session: bool = False
    ) -> ForkedChild:
        """A fork that runs `module`."""
        order = ForkOrder(
            module=module,
            environ={**environ, PARENT_PID: str(self._server.pid)},
            leads_session=leads_session,
        )
        stdin, to_stdin = os.pipe()
        from_stderr, stderr = os.pipe()
        told, tell = os.pipe()
        theirs = (stdin, stderr, tell)
        socket.send_fds(self._orders, [msgspec.msgpack.encode(order)], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        (pid,) = PID.unpack(self._orders.recv(PID.size))
        return ForkedChild(pid, open(to_stdin, "wb"), open(from_stderr, "rb"), told=told)

    def close(self) -> None:
        """Ends the server, and with it its forks."""
        self._orders.close()
        self._server.wait(LIMIT_S)


@cache
def fork_client() -> ForkClient:
    """The one of this process, started with the first fork."""
    made = ForkClient()
    atexit.register(made.close)
    return made
