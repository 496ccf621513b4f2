"""The ranks of a member: what they are, as the router knows it, and how they keep pace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from cluster.membership.member import ranks_from_wire
from cluster.rank_facts import RankFacts
from protos import membership_pb2, worker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus(RankFacts):
    """Its times are of a step, of late: see RankPace. All are 0 for a single rank, for a group that
    has computed nothing yet, and where the worker does not answer."""

    step_collectives_ms: float
    step_wait_ms: float
    step_skew_ms: float


def rank_statuses(
    facts: Iterable[membership_pb2.RankFacts], paces: Iterable[worker_pb2.RankPace]
) -> list[RankStatus]:
    """In the order of the facts."""
    by_rank = {pace.rank: pace for pace in paces}
    return [
        _status(each, by_rank.get(each.rank, worker_pb2.RankPace()))
        for each in ranks_from_wire(facts)
    ]


def _status(facts: RankFacts, pace: worker_pb2.RankPace) -> RankStatus:
    return RankStatus(
        **asdict(facts),
        step_collectives_ms=pace.step_collectives_ms,
        step_wait_ms=pace.step_wait_ms,
        step_skew_ms=pace.step_skew_ms,
    )
