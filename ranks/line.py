"""A way between what is plugged into the processes of one engine, whatever they say to each other.

conductor   RankLine.tell(body)  --- a WORD, ordered with the steps -->  RankExtension.handle
            RankLine.gather()    <-- with all of them -------------->    the rank's own Gather
            RankLine.hear()      <-- a Word report -------------------   RankExtension.poll
            RankLine.greetings   <-- RankReady ----------------------    RankExtension.greeting
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

Gather = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
"""Own rows [num_rows, width] and those of every other rank, side by side in order, from the ranks'
widths. Between two steps: each rank calls it for the same word. Raises RankLost."""


class RankLine(Protocol):
    """The conductor's, to the extensions of the other ranks. From the engine's one thread."""

    @property
    def greetings(self) -> Mapping[int, bytes]:
        """What each rank's extension said as it began, by rank; opaque here."""

    def tell(self, body: bytes) -> None:
        """To all of them, in order with the steps. Raises RankLost."""

    def gather(self, rows: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """A Gather."""

    def hear(self) -> list[tuple[int, bytes]]:
        """What has come since the last call: (rank, body), in order for each rank. Never waits."""


class RankExtension(Protocol):
    """Of a rank that is not the conductor. All is called from its one thread and must return at
    once; what it raises ends the rank, and so the group."""

    @property
    def busy(self) -> bool:
        """True while something is in flight: the rank polls instead of sleeping."""

    @property
    def greeting(self) -> bytes:
        """For the conductor's extension, with RankReady; asked once."""

    def handle(self, body: bytes) -> None:
        """What the conductor has told all ranks, in order, between the steps around it."""

    def poll(self) -> list[bytes]:
        """For the conductor, once per turn."""

    def close(self) -> None:
        """The process ends. Called once."""
