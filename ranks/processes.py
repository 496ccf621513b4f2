"""Ranks as processes of this host: `python -m <entry_module>`, started by their conductor.

start  the launch goes over standard input, its log comes back and into the conductor's own
end    noticed by `poll`; with the conductor by the kernel (parent_death.py), and with the
       process group of the engine, which they belong to
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping
from typing import IO, Protocol

from cluster.errors import ConfigError
from cluster.launcher.protocol import VISIBLE_DEVICES
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.own_python import module_argv, module_environ
from cluster.process.parent_death import PARENT_PID
from cluster.process.signs_of_life import SignsOfLife
from ranks.launch import CONDUCTOR, RankLaunch
from ranks.log_relay import LogRelay
from ranks.spawner import RankEnd, RankPlaces


class ProcessSpawner:
    """A Spawner. The thread that starts the ranks must outlive them: Linux ends them with it."""

    def __init__(self, entry_module: str, *, gpus: tuple[str, ...] | None = None) -> None:
        """`gpus`: of this host, as CUDA_VISIBLE_DEVICES names them; each rank sees one alone, the
        conductor the first, from `place` on. None: the ranks compute on the CPU."""
        self._entry_module, self._gpus = entry_module, gpus
        self._started: list[LocalRank] = []

    def place(self, world_size: int) -> RankPlaces:
        """See Spawner."""
        if self._gpus is not None and len(self._gpus) < world_size:
            raise ConfigError(_too_few(world_size, self._gpus), param="tensor_parallel_size")
        if self._gpus is not None:
            os.environ[VISIBLE_DEVICES] = self._gpus[CONDUCTOR]
        return RankPlaces(nodes=(socket.gethostname(),) * world_size)

    def start(self, launch: RankLaunch) -> LocalRank:
        """See Spawner."""
        environ = dict(os.environ) | module_environ() | {PARENT_PID: str(os.getpid())}
        if self._gpus is not None:
            environ[VISIBLE_DEVICES] = self._gpus[launch.rank]
        try:
            child = self._begin(self._entry_module, environ)
        except OSError as error:
            raise ConfigError(f"rank {launch.rank} cannot be started: {error}") from error
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:  # its end is told by `poll`
            child.stdin.write(launch.pack())
        started = LocalRank(launch.rank, child)
        self._started.append(started)
        return started

    def close(self) -> None:
        """See Spawner."""
        for rank in self._started:
            rank.kill()
        for rank in self._started:
            rank.await_end()
        self._started.clear()

    def _begin(self, entry_module: str, environ: Mapping[str, str]) -> RankChild:
        """A process, with pipes as its standard input and error. Raises OSError."""
        return subprocess.Popen(
            module_argv(entry_module), stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
        )


class RankChild(Protocol):
    """What is asked of a subprocess.Popen."""

    @property
    def pid(self) -> int:
        """Its own."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """A pipe to it."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """A pipe from it."""

    def poll(self) -> int | None:
        """Its exit code once it has ended, or minus its signal; then it is reaped."""

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""

    def wait(self, timeout: float) -> int:
        """As `poll`, at its end. Raises subprocess.TimeoutExpired."""


class LocalRank:
    """A RankProcess."""

    def __init__(self, rank: int, child: RankChild) -> None:
        """`child` has a pipe as its standard error."""
        assert child.stderr is not None
        self._rank, self._child = rank, child
        self._log = LogRelay(os.dup(child.stderr.fileno()))
        child.stderr.close()
        self._node = socket.gethostname()
        self._end: RankEnd | None = None

    @property
    def rank(self) -> int:
        """See RankProcess."""
        return self._rank

    @property
    def pid(self) -> int:
        """See RankProcess."""
        return self._child.pid

    @property
    def node(self) -> str:
        """See RankProcess."""
        return self._node

    def poll(self) -> RankEnd | None:
        """See RankProcess."""
        if self._end is None:
            exit_code = self._child.poll()  # before the log: what it wrote last is there then
            self._log.pass_on()
            if exit_code is not None:
                self._end = RankEnd(exit_code=exit_code, last_lines=self._log.last_lines)
        return self._end

    def signs_of_life(self) -> SignsOfLife | None:
        """See RankProcess."""
        return SignsOfLife.of(self.pid)

    def kill(self) -> None:
        """See RankProcess."""
        with contextlib.suppress(OSError):
            self._child.kill()

    def await_end(self) -> None:
        """After `kill`. One that a driver keeps in the kernel is given up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(KILL_TIMEOUT_S)
        self.poll()
        self._log.close()


def _too_few(world_size: int, gpus: tuple[str, ...]) -> str:
    rows = [
        f"  rank {rank}   1 GPU   {'GPU ' + gpus[rank] if rank < len(gpus) else 'none free'}"
        for rank in range(world_size)
    ]
    return (
        f"{world_size} ranks need a GPU each, and this host has {len(gpus)} of them:\n"
        + "\n".join(rows)
        + "\nlower --tensor-parallel-size, or place the ranks on several hosts"
    )
