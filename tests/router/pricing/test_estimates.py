"""What is learned from finished requests."""

import random

import pytest

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.pricing.estimates import (
    BELIEVED_S,
    DEFAULT_HANDOFF_MS,
    DEFAULT_KV_BYTES_PER_S,
    Estimates,
    PrefillModel,
    link_bytes_per_s,
)
from router.pricing.policy import choose_route
from router.pricing.route import RoutingView, WorkerView

P, D = WorkerKey("p", "i"), WorkerKey("d", "i")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def finished(estimates: Estimates, *, tokens: int = 100, pair: bool = True, **times: float) -> None:
    estimates.finished(
        Usage(tokens, 5, 0),
        Timing(**times),
        decode=D,
        prefill=P if pair else None,  # type: ignore[arg-type]
    )


def test_without_measurements_the_stated_defaults_hold() -> None:
    estimates = Estimates(Clock())
    assert estimates.handoff_ms == DEFAULT_HANDOFF_MS
    assert link_bytes_per_s(estimates.kv_bytes_per_s, 0.0) == DEFAULT_KV_BYTES_PER_S
    assert link_bytes_per_s(estimates.kv_bytes_per_s, 5e9) == 5e9
    assert estimates.prefill.speed_of(P).of(512) == pytest.approx(261, rel=0.01)


def test_the_line_finds_base_and_slope_of_what_was_measured() -> None:
    model, rng = PrefillModel(), random.Random(1)
    for _ in range(60):
        tokens = rng.randrange(10, 1500)
        model.add(rng.choice((P, D)), tokens, (20 + 0.1 * tokens) * rng.uniform(0.95, 1.05))
    for tokens in (200, 700, 1500):
        assert model.speed_of(P).of(tokens) == pytest.approx(20 + 0.1 * tokens, rel=0.25)


def test_one_cold_prefill_makes_no_worker_look_slower_than_the_other() -> None:
    model = PrefillModel()
    model.add(P, 40, 400.0)
    assert model.speed_of(P) == model.speed_of(D)


def test_a_worker_that_is_slower_for_long_is_seen_as_slower() -> None:
    model = PrefillModel()
    for number in range(40):
        tokens = 50 + 37 * (number % 11)
        model.add(P, tokens, 10 + 0.4 * tokens)
        model.add(D, tokens, 20 + 0.8 * tokens)
    assert model.speed_of(D).of(300) > 1.5 * model.speed_of(P).of(300)
    model.forget(D)
    assert model.speed_of(D).of(300) < 1.5 * model.speed_of(P).of(300)


@pytest.mark.parametrize("took_ms", [0.0, -1.0, 1e-9, 1e9])
def test_no_measurement_makes_a_speed_negative(took_ms: float) -> None:
    model = PrefillModel()
    for tokens in (0, 1, 16, 512, 5, 5):
        model.add(P, tokens, took_ms)
        speed = model.speed_of(P)
        assert speed.base_ms >= 0
        assert speed.ms_per_token > 0


def test_a_handoff_is_what_pairs_take_over_local_requests_until_that_is_old() -> None:
    clock = Clock()
    estimates = Estimates(clock)
    for kv_ms in (10.0, 900.0, 12.0):
        finished(estimates, kv_ms=kv_ms, decode_ms=5.0, prefill_ms=30.0)
        finished(estimates, pair=False, decode_ms=2.0, prefill_ms=30.0)
    assert estimates.handoff_ms == pytest.approx(12 + 5 - 2)
    clock.now_s = BELIEVED_S + 1
    assert estimates.handoff_ms == DEFAULT_HANDOFF_MS


def test_a_links_rate_is_dominated_by_its_large_transfers() -> None:
    estimates = Estimates(Clock())
    finished(estimates, kv_bytes=1_000, kv_transfer_ms=1.0)  # type: ignore[arg-type]
    finished(estimates, kv_bytes=200_000_000, kv_transfer_ms=99.0)  # type: ignore[arg-type]
    assert link_bytes_per_s(estimates.kv_bytes_per_s, 0.0) == pytest.approx(2e9, rel=0.01)


def test_a_fleet_of_one_pair_keeps_handing_over_new_prompts_and_keeping_cached_ones() -> None:
    """What a small CPU model does: 22 ms for any step, 0.4 ms a token, one cold start."""
    estimates = Estimates(Clock())

    def route(prompt_tokens: int, cached: int) -> str | None:
        decode, prefill = (
            WorkerView(
                key=key,
                pairing_key="x",
                speed=estimates.prefill.speed_of(key),
                matched_tokens=cached,
                decode_step_ms=22.0,
                kv_bytes_per_token=23_040,
                kv_bytes_per_s=link_bytes_per_s(estimates.kv_bytes_per_s, 0.0),
            )
            for key in (D, P)
        )
        chosen = choose_route(
            RoutingView(
                prompt_tokens=prompt_tokens,
                max_tokens=64,
                block_size_tokens=16,
                decode=(decode,),
                prefill=(prefill,),
                handoff_ms=estimates.handoff_ms,
            )
        )
        computed = prompt_tokens - cached
        cold_ms = 400.0 if computed == 40 else 0.0
        finished(
            estimates,
            tokens=computed,
            pair=bool(chosen.prefill),
            prefill_ms=22.0 + 0.4 * computed + cold_ms,
            decode_ms=6.0 if chosen.prefill else 2.0,
        )
        return chosen.prefill[0].worker_id if chosen.prefill else None

    assert route(40, 0) == "p"
    for prompt_tokens in (45, 50, 200, 35, 900):
        assert route(prompt_tokens, 0) == "p"
        assert route(prompt_tokens, (prompt_tokens - 1) // 16 * 16) is None
