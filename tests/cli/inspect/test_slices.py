"""Which slice explains the tail, and when nobody can tell."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from cli.inspect.slices import LEAST_REQUESTS, Slicing, chance_of, quantile
from cli.inspect.timed_requests import By, TimedRequest, TtftStage

WORKER = (By.WORKER,)


def one(ttft_ms: float, *where: tuple[By, str], stage: TtftStage = TtftStage.WAIT) -> TimedRequest:
    return TimedRequest(
        ttft_ms=ttft_ms,
        itl_ms=None,
        stages=dict.fromkeys(TtftStage, 0.0) | {stage: ttft_ms},
        slices=frozenset(where),
    )


def planted(num: int, *, every: int, factor: float, seed: int = 7) -> list[TimedRequest]:
    """`factor` longer at the worker `slow`, which has every so many-th of them."""
    draw = random.Random(seed)
    return [
        one(
            draw.uniform(80, 120) * (factor if at % every == 0 else 1),
            (By.WORKER, "decode-slow" if at % every == 0 else "decode-well"),
            (By.TENANT, draw.choice("abc")),
            (By.ROUTE, "pair"),
        )
        for at in range(num)
    ]


def test_a_slow_worker_explains_the_tail_and_stands_first() -> None:
    first, *others = Slicing(planted(100, every=3, factor=4)).slices(By)
    assert (first.by, first.value) == (By.WORKER, "decode-slow")
    assert first.stands_out and first.explains == 1.0 and first.share_of_tail == 1.0
    assert first.mostly is TtftStage.WAIT and first.stage_shares[TtftStage.WAIT] == 1.0
    assert not any(each.stands_out for each in others)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_pool_of_several_workers_is_named_before_any_of_them(seed: int) -> None:
    draw = random.Random(seed)

    def asked(at: int) -> TimedRequest:
        pool = "l40s" if at % 3 == 0 else "h100"
        return one(
            draw.uniform(80, 120) * (4 if pool == "l40s" else 1),
            (By.POOL, pool),
            (By.WORKER, f"{pool}-{draw.choice('ab')}"),
            (By.TENANT, draw.choice("abc")),
        )

    first, *_ = Slicing(asked(at) for at in range(300)).slices(By)
    assert (first.by, first.value) == (By.POOL, "l40s")
    assert first.stands_out and first.explains == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_without_a_slow_part_is_not_told_of_one(seed: int) -> None:
    slicing = Slicing(planted(200, every=2, factor=1, seed=seed))
    assert [each.value for each in slicing.slices(By) if each.stands_out] == []


def test_what_everybody_shares_explains_nothing() -> None:
    (everybody,) = Slicing(planted(100, every=3, factor=4)).slices([By.ROUTE])
    assert everybody.count == 100 and everybody.explains is None and not everybody.stands_out


def test_of_two_that_explain_as_much_the_smaller_is_first() -> None:
    everyone = [
        one(
            500.0 + at if at % 4 == 0 else 100.0,
            (By.WORKER, f"prefill-{at % 4}"),
            (By.TENANT, "half" if at % 2 == 0 else "other"),
        )
        for at in range(80)
    ]
    first, second, *_ = Slicing(everyone).slices(By)
    assert (first.value, second.value) == ("prefill-0", "half")
    assert first.explains == second.explains == 1.0


def test_too_few_requests_have_no_tail() -> None:
    slicing = Slicing(planted(LEAST_REQUESTS - 1, every=3, factor=4))
    assert slicing.tail.num_tail == 0 and slicing.tail.over_percent == 0
    assert all(each.explains is None for each in slicing.slices(By))
    assert Slicing([]).slices(By) == []


def test_a_slice_of_a_few_requests_is_not_judged() -> None:
    few = [one(900.0, (By.WORKER, "decode-rare")) for _ in range(4)]
    found = Slicing([*planted(96, every=3, factor=1), *few]).slices(WORKER)
    rare = next(each for each in found if each.value == "decode-rare")
    assert rare.explains is None and rare.num_tail == 4 and rare.ttft_p95_ms is None
    assert rare.ttft_p50_ms == 900.0


def test_the_tail_is_five_percent_and_never_less_than_ten() -> None:
    assert Slicing(planted(1000, every=3, factor=1)).tail.over_percent == 95
    small = Slicing(planted(40, every=3, factor=1)).tail
    assert (small.num_tail, small.over_percent) == (10, 75)


def test_failures_are_counted_beside_those_that_had_a_token() -> None:
    lost = TimedRequest(
        ttft_ms=None, itl_ms=None, stages={}, slices=frozenset({(By.WORKER, "decode-slow")})
    )
    slicing = Slicing([*planted(60, every=3, factor=4), lost])
    assert (slicing.tail.num_requests, slicing.tail.num_failed) == (60, 1)
    assert slicing.slices(WORKER)[0].num_failed == 1


def test_of_a_pool_and_its_only_worker_the_worker_is_named_first() -> None:
    at_worker = {(By.POOL, "prefill"), (By.WORKER, "prefill-0")}
    slow = [one(900.0, *at_worker) for _ in range(8)]
    found = Slicing([*slow, *planted(96, every=97, factor=1)]).slices([By.POOL, By.WORKER])
    assert [(each.by, each.value) for each in found[:2]] == sorted(at_worker, reverse=True)


def test_the_chance_is_that_of_drawing_lots() -> None:
    total, marked, drawn, least = 7, 3, 4, 2
    ways = [sum(each < marked for each in some) for some in combinations(range(total), drawn)]
    assert chance_of(least, drawn, marked, total) == sum(each >= least for each in ways) / len(ways)


def test_a_quantile_is_a_value_that_was_seen_and_needs_enough_of_them() -> None:
    values = [float(each) for each in range(1, 101)]
    assert [quantile(values, share) for share in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]
    assert quantile(values[:19], 0.95) is None and quantile([], 0.5) is None
