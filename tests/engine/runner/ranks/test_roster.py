"""What a conductor makes of its ranks' reports: causes, and how long they are waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import RankLost
from engine.runner.ranks import roster as roster_module
from engine.runner.ranks.roster import Roster
from engine.runner.ranks.watch import RankWatch
from ranks.reports import Arrived, PartLoaded, Progress, RankFailed, RankReport, Said
from tests.engine.runner.ranks.test_watch import FakeRank, QuietGround
from tests.manual_clock import ManualClock


class Inbox:
    """What ranks say, put there by a test."""

    def __init__(self) -> None:
        self.reports: list[RankReport] = []

    def take(self, timeout_s: float = 0.0) -> Sequence[RankReport]:
        reports, self.reports = self.reports, []
        return reports


class Scene:
    """A conductor of two other ranks."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.ranks = [FakeRank(1), FakeRank(2)]
        self.watch = RankWatch(self.ranks, QuietGround())
        self.clock = ManualClock()
        self.roster = Roster(self.inbox, self.watch, world_size=3, limit_s=60.0, clock=self.clock)  # type: ignore[arg-type]


def report(rank: int, said: Said) -> RankReport:
    return RankReport(rank=rank, generation=7, said=said)


def failed(rank: int, message: str) -> RankReport:
    return report(rank, RankFailed(code="internal_error", message=message))


def test_ranks_have_loaded_when_each_says_so_whatever_its_phases_are_called() -> None:
    scene = Scene()
    scene.watch.start()
    waits = Progress(phase="wait for the other ranks", fraction=1.0)
    turns = [[report(rank, waits) for rank in (1, 2)], [report(1, PartLoaded())]]
    turns += [[report(2, Arrived())], [report(2, PartLoaded())]]
    scene.inbox.take = lambda timeout_s=0.0: turns.pop(0)  # type: ignore[method-assign,misc]
    scene.roster.await_loaded(lambda phase, fraction: None)
    assert turns == []
    scene.watch.close()


def test_a_cause_is_waited_for_less_long_than_an_engine_may_be_silent() -> None:
    assert EngineOptions().engine_silence_s > roster_module._CAUSE_S


def test_a_rank_that_has_said_why_it_failed_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster_module, "_CAUSE_S", 3600.0)
    scene = Scene()
    scene.inbox.reports = [failed(2, "its disk is full")]
    cause = scene.roster.cause_of(RankLost("a consequence"))
    assert "rank 2 failed: its disk is full" in cause.message


def test_a_rank_that_loads_on_does_not_hide_one_that_makes_no_progress() -> None:
    scene = Scene()
    scene.watch.start()
    took: list[str] = []

    def take(timeout_s: float = 0.0) -> list[RankReport]:
        scene.clock.advance(1.0)
        return [report(1, Progress(phase="weights", fraction=0.5))]

    scene.inbox.take = take  # type: ignore[method-assign]
    began_s = scene.clock()
    with pytest.raises(RankLost, match=r"ranks \[2\] made no progress for 60 s") as lost:
        scene.roster.await_loaded(lambda phase, fraction: took.append(phase))
    assert lost.value.ranks == (2,)
    assert scene.clock() - began_s < 65.0
    assert set(took) == {"rank 1: weights"}
    scene.watch.close()
