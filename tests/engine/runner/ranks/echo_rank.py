"""`python -m tests.engine.runner.ranks.echo_rank`: its extension says back what it is told."""

from __future__ import annotations

import threading
import time

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankParts
from ranks.line import RankExtension

WORK_S = 2.0
"""Of a rank that is told to work: the others wait for it in their next step."""


class EchoExtension:
    """A RankExtension."""

    busy = False

    def __init__(self, parts: RankParts) -> None:
        rank = parts.rank.index
        self.greeting = f"rank {rank} keeps {list(parts.shares[rank].heads)}".encode()
        self._heard: list[bytes] = []

    def handle(self, body: bytes) -> None:
        """See RankExtension."""
        if body == b"fail":
            raise ValueError("told to fail")
        if body == b"hang":
            threading.Event().wait()
        if body == b"work":
            end_s = time.monotonic() + WORK_S
            while time.monotonic() < end_s:
                pass
        self._heard.append(body)

    def poll(self) -> list[bytes]:
        """See RankExtension."""
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        """See RankExtension."""


def make_echo(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory."""
    return EchoExtension(parts)


if __name__ == "__main__":
    rank_main(make_echo)
