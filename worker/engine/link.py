"""The seam between a server process and its engine process."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from cluster.errors import SplitserveError
from engine.contract.commands import Command
from engine.contract.messages import Frame, LoadProgress, Ready


class LifeSign(enum.Enum):
    """What shows that an engine lives."""

    WORD = "word"
    """It has said something, if only that its loop turns."""
    LONG_STEP = "long step"
    """It has said nothing for longer than between two beats, and works (signs_of_life.py)."""


LifeListener = Callable[[LifeSign], None]


class EngineLink(Protocol):
    """One engine process, as `EngineClient` gives it. All calls from the event loop.

    `start` raises the typed error of an engine that cannot start; the caller still calls `stop`.
    `stop` asks the process to end, waits for it, and is idempotent.
    """

    @property
    def pid(self) -> int | None:
        """Of the engine process, once it was started."""

    @property
    def died(self) -> asyncio.Future[str]:
        """Done, with how, once the process has ended without `stop`."""

    @property
    def last_word(self) -> SplitserveError | None:
        """What the engine has said that it ends by; None where it has said nothing."""

    def on_life(self, listener: LifeListener) -> None:
        """`listener` is called with every sign of life from now on: whatever the engine says, and
        the work that the kernel sees in a long step. It must return at once and not raise."""

    async def start(self, on_progress: Callable[[LoadProgress], None] | None = None) -> Ready:
        """Starts the process and returns when it has loaded its model."""

    async def send(self, command: Command) -> None:
        """Commands arrive in the order of the calls. Raises WorkerLost when nobody is there."""

    def frames(self) -> AsyncIterator[Frame]:
        """Every frame, in order; ends when the process does. One reader."""

    async def stop(self) -> None:
        """See above."""
