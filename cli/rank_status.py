"""The ranks of a member: what they are, as the router knows it, and how they keep pace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    kv_blocks_left: int | None
    """Free and cached blocks of its own; None where the ranks share the heads of every block."""


def rank_statuses(
    facts: Iterable[membership_pb2.RankFacts],
    paces: Iterable[worker_pb2.RankPace],
    blocks_left: Sequence[int],
) -> list[RankStatus]:
    """In the order of the facts; `blocks_left` is by rank, or empty."""
    by_rank, left = {pace.rank: pace for pace in paces}, dict(enumerate(blocks_left))
    return [
        _status(each, by_rank.get(each.rank, worker_pb2.RankPace()), left.get(each.rank))
        for each in ranks_from_wire(facts)
    ]


def _status(facts: RankFacts, pace: worker_pb2.RankPace, blocks_left: int | None) -> RankStatus:
    return RankStatus(
        **asdict(facts),
        step_collectives_ms=pace.step_collectives_ms,
        step_wait_ms=pace.step_wait_ms,
        step_skew_ms=pace.step_skew_ms,
        kv_blocks_left=blocks_left,
    )
