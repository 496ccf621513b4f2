"""What is said of a group's ranks and experts is said when there is something to say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cluster.generation import EngineLoad
from cluster.rank_facts import RankWait
from engine.contract.messages import ExpertNumbers, Frame
from engine.model.experts.balance import ExpertBalance
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
