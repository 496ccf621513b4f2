"""What is said of a group's ranks and experts is said when there is something to say."""

from __future__ import annotations

import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from cluster.generation import EngineLoad
from cluster.rank_facts import RankWait
from engine.contract.expert_numbers import ExpertNumbers
from engine.contract.messages import Frame
from engine.model.experts.balance import ExpertBalance
from engine.model.load_phases import silent
from engine.runner.ranks.group import REPORTS_INTERVAL_S, RankGroup
from engine.runner.ranks.group_turn import ConductorTurn

WAITS = [RankWait(rank=rank, num_plans=3, waited_s=0.5) for rank in (0, 1)]


def turn_of(balance: ExpertBalance | None = None) -> ConductorTurn:
    group, runner = SimpleNamespace(waits=WAITS), SimpleNamespace()
    return ConductorTurn(cast(Any, group), cast(Any, runner), balance)


def enriched(turn: ConductorTurn, load: EngineLoad | None = None) -> Frame:
    frame = Frame(load=load)
    turn.enrich(frame)
    return frame


def test_what_is_said_of_experts_is_said_when_it_has_changed() -> None:
    balance = ExpertBalance()
    turn = turn_of(balance)
    assert enriched(turn).experts is None
    balance.imbalance, balance.num_rebalances = {3: 1.5}, 1
    assert enriched(turn).experts == ExpertNumbers(imbalance={3: 1.5}, num_rebalances=1)
    assert enriched(turn).experts is None


def test_how_ranks_keep_pace_goes_with_the_engine_s_load_and_no_frame_is_sent_for_it() -> None:
    turn = turn_of()
    assert enriched(turn).is_empty
    assert enriched(turn, EngineLoad()).rank_waits == WAITS


def test_losses_are_seen_in_every_turn_and_reports_are_read_some_times_a_second() -> None:
    now_s, done = [5.0], Counter[str]()
    roster = SimpleNamespace(
        take=lambda: done.update(["take"]), check=lambda: done.update(["check"])
    )
    ties = cast(Any, SimpleNamespace(roster=roster))
    group = RankGroup(ties, contextlib.ExitStack(), silent, clock=lambda: now_s[0])
    for _ in range(3):
        group.check()
    assert done == {"take": 1, "check": 3}
    now_s[0] += 2 * REPORTS_INTERVAL_S
    group.check()
    assert done == {"take": 2, "check": 4}
