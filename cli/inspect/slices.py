"""Which slice of requests explains the tail of all: a plain count, and how likely it is by chance.

    tail       the requests with the latest first tokens: 5 % of all, and TAIL at least
    explains   (t - a) / (1 - a) for a slice that has t of the tail and a of all: the part of the
               tail that would not be there were the slice as quick as the others
    chance     that so many of the tail, or more, fall into a slice of this size by drawing lots

A slice stands out where lots would hardly do it, however many slices were looked at. Of those the
first is the one whose share of the tail is furthest above its share of all: of two that explain as
much, the smaller is nearer to the cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cli.inspect.timed_requests import By, TimedRequest, TtftStage

LEAST_REQUESTS = 40
"""With a first token. Of fewer a tail is anecdotes."""
LEAST_IN_SLICE = 5
"""Likewise, and of those outside of it."""
TAIL = 10
_TAIL_SHARE = 0.05
_MAX_CHANCE = 0.05
"""Of all slices together."""
LEAST_FOR = {0.5: 1, 0.95: 20, 0.99: 100}
"""Observations that a quantile needs: with fewer it would be the largest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Of all requests."""

    num_requests: int
    """That had a first token."""
    num_failed: int
    """Before their first token."""
    num_tail: int
    """0: not enough requests."""
    over_ms: float
    """The latest first token of those that are not in the tail."""

    @property
    def over_percent(self) -> int:
        """What quantile the tail lies above."""
        return math.floor(100 * (1 - self.num_tail / self.num_requests)) if self.num_tail else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One of them. What there are too few requests for is None."""

    by: By
    value: str
    count: int
    num_failed: int
    share_of_all: float
    num_tail: int
    share_of_tail: float
    explains: float | None
    chance: float | None
    stands_out: bool
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    itl_p95_ms: float | None
    stage_shares: Mapping[TtftStage, float]
    """Of the time by which its requests above everybody's median are above the median of each
    stage; empty where none is."""

    @property
    def mostly(self) -> TtftStage | None:
        """The stage with the largest share."""
        return max(self.stage_shares, key=self.stage_shares.__getitem__, default=None)

    @property
    def lead(self) -> float:
        """Its share of the tail above its share of all."""
        return self.share_of_tail - self.share_of_all


class Slicing:
    """Of requests that are over; asks nobody."""

    def __init__(self, requests: Iterable[TimedRequest]) -> None:
        everyone = list(requests)
        self._failed = [each for each in everyone if each.ttft_ms is None]
        self._timed = [each for each in everyone if each.ttft_ms is not None]
        self._timed.sort(key=_ttft_of)
        self._medians = {
            stage: median([each.stages[stage] for each in self._timed] or [0.0])
            for stage in TtftStage
        }
        self._median_ms = median([_ttft_of(each) for each in self._timed] or [0.0])
        num = len(self._timed)
        size = max(TAIL, math.ceil(_TAIL_SHARE * num)) if num >= LEAST_REQUESTS else 0
        self._tail = frozenset(map(id, self._timed[num - size :]))
        self.tail = Tail(
            num_requests=num,
            num_failed=len(self._failed),
            num_tail=size,
            over_ms=_ttft_of(self._timed[num - size - 1]) if size else 0.0,
        )

    @property
    def ttfts_ms(self) -> list[float]:
        """Of all that had a first token, quickest first."""
        return [_ttft_of(each) for each in self._timed]

    def slices(self, kinds: Iterable[By]) -> list[Slice]:
        """Of these kinds: those that stand out first, then by how far they lead; of a pool and its
        only worker the worker."""
        wanted = set(kinds)
        everyone = [*self._timed, *self._failed]
        names = sorted({name for each in everyone for name in each.slices if name[0] in wanted})
        found = [self._slice(by, value, len(names)) for by, value in names]
        return sorted(found, key=_rank)

    def _slice(self, by: By, value: str, num_slices: int) -> Slice:
        inside = [each for each in self._timed if (by, value) in each.slices]
        ttfts = [_ttft_of(each) for each in inside]
        itls = sorted(each.itl_ms for each in inside if each.itl_ms is not None)
        num_tail = sum(id(each) in self._tail for each in inside)
        explains, chance = self._judged(len(inside), num_tail)
        return Slice(
            by=by,
            value=value,
            count=len(inside),
            num_failed=sum((by, value) in each.slices for each in self._failed),
            share_of_all=len(inside) / len(self._timed) if self._timed else 0.0,
            num_tail=num_tail,
            share_of_tail=num_tail / len(self._tail) if self._tail else 0.0,
            explains=explains,
            chance=chance,
            stands_out=chance is not None and chance * num_slices < _MAX_CHANCE,
            ttft_p50_ms=quantile(ttfts, 0.5),
            ttft_p95_ms=quantile(ttfts, 0.95),
            ttft_p99_ms=quantile(ttfts, 0.99),
            itl_p95_ms=quantile(itls, 0.95),
            stage_shares=self._stage_shares(inside),
        )

    def _judged(self, num_inside: int, num_tail: int) -> tuple[float | None, float | None]:
        """What it explains, and the chance; None where too few are on either side."""
        num_all, size = len(self._timed), len(self._tail)
        if not size or min(num_inside, num_all - num_inside) < LEAST_IN_SLICE:
            return None, None
        of_all, of_tail = num_inside / num_all, num_tail / size
        explains = max(0.0, (of_tail - of_all) / (1 - of_all))
        return explains, chance_of(num_tail, size, num_inside, num_all)

    def _stage_shares(self, inside: Sequence[TimedRequest]) -> dict[TtftStage, float]:
        slow = [each for each in inside if _ttft_of(each) > self._median_ms]
        above = {
            stage: sum(max(0.0, each.stages[stage] - self._medians[stage]) for each in slow)
            for stage in TtftStage
        }
        total = sum(above.values())
        return {stage: part / total for stage, part in above.items()} if total > 0 else {}


def _rank(each: Slice) -> tuple[bool, float, int, bool]:
    return not each.stands_out, -each.lead, -each.count, each.by is not By.WORKER


def chance_of(least: int, drawn: int, marked: int, total: int) -> float:
    """That of `drawn` out of `total` at least so many are among the `marked`: the hypergeometric
    distribution's tail."""
    ways = sum(
        math.comb(marked, hits) * math.comb(total - marked, drawn - hits)
        for hits in range(least, min(drawn, marked) + 1)
    )
    return ways / math.comb(total, drawn)


def quantile(in_order: Sequence[float], share: float) -> float | None:
    """The smallest value that so large a share does not exceed; None of too few."""
    if len(in_order) < LEAST_FOR[share]:
        return None
    return in_order[math.ceil(share * len(in_order)) - 1]


def _ttft_of(request: TimedRequest) -> float:
    assert request.ttft_ms is not None
    return request.ttft_ms
