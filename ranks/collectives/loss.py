"""What is said of ranks that are lost, that have left, or that come twice."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import ConfigError, RankLost


def rank_lost(lost: Sequence[int], own: int, generation: int, deadline_s: float) -> RankLost:
    """`lost` as this rank, `own`, knows them; empty where nobody can tell."""
    if own in lost:
        return RankLost(
            f"rank {own} of generation {generation} was given up by its group: it stood still, or "
            "its process was seen to end; the group is started anew",
            ranks=tuple(lost),
        )
    return RankLost(
        f"{_named(lost)} of generation {generation} did not come within {deadline_s:g} s, or "
        "ended; the group is started anew",
        ranks=tuple(lost),
    )


def has_left() -> RankLost:
    """Of calls of a rank that has closed its collective."""
    return RankLost("this rank has left its group; form a group anew")


def given_up(generation: int) -> RankLost:
    """Of calls in a group that its conductor has given up."""
    return RankLost(
        f"generation {generation} of this group was given up: it has lost a rank; the group is "
        "started anew"
    )


def is_taken(rank: int, generation: int) -> ConfigError:
    """Of a second process that would be the same rank."""
    return ConfigError(
        f"rank {rank} of generation {generation} is another process already; "
        "start each rank of a generation once"
    )


def _named(lost: Sequence[int]) -> str:
    if not lost:
        return "a rank"
    return f"rank{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"
