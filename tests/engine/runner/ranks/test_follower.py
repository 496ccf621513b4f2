"""A rank's start, step by step, with ties that only say what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import RankLost
from engine.runner.ranks import follower as module
from engine.runner.ranks.follower import Follower
from ranks.collectives.rendezvous import CollectiveKind, Rendezvous
from ranks.launch import RankLaunch, TcpWay
from ranks.reports import Progress, Said
from tests.engine.runner.ranks.echo_rank import make_echo


class SeenTies:
    """An Arrival and a ReportSender in one, which write down what is asked of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def send(self, said: Said) -> None:
        self.seen.append(said.phase if isinstance(said, Progress) else type(said).__name__)

    def await_all(self, timeout_s: float) -> None:
        self.seen.append("await all")

    def join(self, deadline_s: float) -> None:
        self.call_limit_s = deadline_s
        self.seen.append("join")
        raise RankLost("nobody is there")

    def fail(self) -> None:
        self.seen.append("fail")

    def close(self) -> None:
        """Nothing is open."""


LAUNCH = RankLaunch(
    spec=b"",
    rank=1,
    world_size=2,
    generation=7,
    node="there",
    rendezvous=Rendezvous(kind=CollectiveKind.GLOO, generation=7, world_size=2),
    reports_address="",
    way=TcpWay("", ""),
)


def test_a_rank_says_that_it_is_there_and_joins_once_all_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ties = SeenTies()
    spec = cast(Any, SimpleNamespace(options=EngineOptions(step_timeout_s=70.0)))
    monkeypatch.setattr(module, "arrive", lambda launch: ties)
    monkeypatch.setattr(module, "ReportSender", lambda *launch: ties)
    with pytest.raises(RankLost, match="nobody is there"):
        Follower(LAUNCH, spec, make_echo).run()
    began = ["Arrived", "await all", "join the other ranks", "join"]
    assert ties.seen == [*began, "fail", "RankFailed"]
    assert ties.call_limit_s == 70.0
