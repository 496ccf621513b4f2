"""What a supervisor asks of the place where processes run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cluster.process.exit_words import exit_in_words
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.startup import ProcessReport

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that names the GPUs of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A machine of several, as it was when the first process was to start there."""

    address: str
    """At which other machines reach it."""
    num_cores: int
    free_memory_share: float
    """Of the memory beside GPUs."""
    free_memory_share_now: float
    """The same as it is now: less, by what of the fleet has started there since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process of the fleet. `name` is stable over restarts; it is a worker's id."""

    name: str
    argv: tuple[str, ...]
    argv_at: Callable[[NodeFacts], tuple[str, ...]] | None = None
    """In place of argv, where a launcher has more than one machine: asked at every launch, since
    each may be on another. Raises ConfigError for one that it cannot be on."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Added to the supervisor's own environment, options removed."""
    stdin: bytes = b""
    """What it reads there."""
    ranks: int = 0
    """Devices that it computes on, where a launcher has more than one machine; 0: none, and it
    stays beside the supervisor."""
    start_timeout_s: float = 600.0
    """Without progress so long while it starts, it is stuck."""
    silence_s: float = 10.0
    """Without a sign of life so long afterwards, it is stuck; counted from its first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended. `status` is its exit code, or minus the signal that killed it."""

    status: int
    tail: tuple[str, ...] = ()
    """The last lines that it printed."""
    log: str = ""
    """Where all of them are; empty when nowhere."""
    cause: str = ""
    """Where the launcher knows more than the process could say: its machine is gone."""

    @property
    def in_words(self) -> str:
        """See exit_words.py."""
        return exit_in_words(self.status)


class ProcessHandle(Protocol):
    """One running process. Called from the event loop's thread only."""

    @property
    def pid(self) -> int:
        """Of the process, for people."""

    def reports(self) -> AsyncIterator[ProcessReport]:
        """What the process says of itself; ends when it closes its end. Read once."""

    async def wait(self) -> ProcessExit:
        """Returns when the process has ended and what it started is gone, too. Any number of
        callers, any number of times; cancelling one does not disturb the others."""

    def signs_of_life(self) -> SignsOfLife | None:
        """Of its main thread, as the kernel sees it now; None where that cannot be seen."""

    def stop(self, *, at_once: bool = False) -> None:
        """Asks it to finish and end, or with `at_once` ends it and all it started. Idempotent."""


class Launcher(Protocol):
    """Starts processes in one kind of place."""

    async def launch(self, spec: ProcessSpec) -> ProcessHandle:
        """Starts a process; the caller owns the handle and must see `wait` return, or give it up.

        Raises ConfigError when the program cannot be started at all.
        """

    async def until_lost(self) -> None:
        """Raises PlaceLost when no process can be started or told anything there any more; those
        that run may do so for a while. Does not return. Called once."""
