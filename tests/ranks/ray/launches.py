"""What trivial followers are told, and patience with them."""

from __future__ import annotations

import re

import pytest

from ranks.collectives.rendezvous import CollectiveKind, Rendezvous
from ranks.launch import RankLaunch, TcpWay
from ranks.spawner import RankEnd, RankProcess
from tests.ranks.ray.cluster_room import within


def launch(rank: int, what: str = "wait", *, world_size: int = 2) -> RankLaunch:
    """Of a group that never meets."""
    return RankLaunch(
        spec=what.encode(),
        rank=rank,
        world_size=world_size,
        generation=1,
        node="here",
        rendezvous=Rendezvous(kind=CollectiveKind.GLOO, generation=1, world_size=world_size),
        reports_address="ipc:///nowhere",
        way=TcpWay("", ""),
    )


def end_of(rank: RankProcess) -> RankEnd:
    """However it ends."""
    return within(rank.poll, f"the end of rank {rank.rank}")


class Heard:
    """What came into this process's own log."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._text = ""

    def said(self, rank: RankProcess, pattern: str) -> str:
        """The first group of `pattern`, once the rank's log has it."""

        def look() -> str | None:
            rank.poll()
            self._text += self._capfd.readouterr().err
            found = re.search(pattern, self._text)
            return found[1] if found else None

        return within(look, pattern)
