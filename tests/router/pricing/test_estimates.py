"""What is learned from finished requests."""

import random

import pytest

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.pricing.estimates import (
    DEFAULT_COMPLETION_TOKENS,
    DEFAULT_HANDOFF_MS,
    DEFAULT_KV_BYTES_PER_S,
    Estimates,
    link_bytes_per_s,
)
from router.pricing.policy import choose_route
from router.pricing.prefill_lines import PrefillLines
from router.pricing.recent_values import BELIEVED_S
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
    model, rng = PrefillLines(), random.Random(1)
    for _ in range(60):
        tokens = rng.randrange(10, 1500)
        model.add(rng.choice((P, D)), tokens, (20 + 0.1 * tokens) * rng.uniform(0.95, 1.05))
    for tokens in (200, 700, 1500):
        assert model.speed_of(P).of(tokens) == pytest.approx(20 + 0.1 * tokens, rel=0.25)


def test_one_cold_prefill_makes_no_worker_look_much_slower_than_the_other() -> None:
    model = PrefillLines()
    for _ in range(20):
        model.add(D, 200, 100.0)
    model.add(P, 40, 2000.0)
    assert model.speed_of(P).of(500) < 1.5 * model.speed_of(D).of(500)


def test_a_new_worker_is_priced_as_its_fleet_is() -> None:
    model = PrefillLines()
    for tokens in (100, 400, 900) * 20:
        model.add(D, tokens, 3 + 0.02 * tokens)
    for tokens in (100, 900):
        assert model.speed_of(P).of(tokens) == pytest.approx(3 + 0.02 * tokens, rel=0.2)


def test_in_a_fleet_of_unequal_workers_each_has_its_own_line() -> None:
    """One computes 20,000 tokens a second and one 5,000; each also after the other was alone."""
    model, rng = PrefillLines(), random.Random(3)

    def true_ms(worker: WorkerKey, tokens: int) -> float:
        return 5 + tokens / (20.0 if worker is P else 5.0)

    def check() -> None:
        for worker in (P, D):
            for tokens in (200, 3000):
                found_ms = model.speed_of(worker).of(tokens)
                assert found_ms == pytest.approx(true_ms(worker, tokens), rel=0.25)

    for workers in ((P, D), (P,), (D,)):
        for _ in range(120):
            worker, tokens = rng.choice(workers), rng.choice((200, 1000, 3000))
            model.add(worker, tokens, true_ms(worker, tokens))
        check()


def test_what_a_worker_says_of_its_steps_is_believed_before_its_first_prompt() -> None:
    model = PrefillLines()
    model.heard(P, 0.025, 0.001)
    assert model.speed_of(P).of(16_000) == pytest.approx(5 + 400 + 125, rel=0.01)
    assert model.speed_of(P).of(16, 16_000) < model.speed_of(P).of(1600)


def test_a_worker_without_a_word_pays_for_attention_as_its_fleet_does() -> None:
    model = PrefillLines()
    model.heard(P, 0.3, 0.4)
    for tokens in (500, 1000, 2000) * 8:
        model.add(P, tokens, model.speed_of(P).of(tokens))
    assert model.speed_of(D).of(2000) == pytest.approx(model.speed_of(P).of(2000), rel=0.1)


def test_attention_to_a_cached_prefix_is_priced_where_it_was_measured() -> None:
    model = PrefillLines()
    model.heard(P, 0.3, 0.2)
    for _ in range(20):
        for tokens, context in ((500, 0), (500, 4000), (2000, 0)):
            pairs = tokens * (context + tokens / 2) / 1024
            model.add(P, tokens, 5 + 0.3 * tokens + 0.2 * pairs, context=context)
    expected_ms = 5 + 0.3 * 500 + 0.2 * 500 * (4000 + 250) / 1024
    assert model.speed_of(P).of(500, 4000) == pytest.approx(expected_ms, rel=0.1)


def test_prompts_that_waited_for_a_core_do_not_make_their_worker_a_slow_one() -> None:
    model = PrefillLines()
    for worker in (P, D):
        model.heard(worker, 0.4, 0.2)
    on_its_own_ms = model.speed_of(P).of(2000)
    for _ in range(30):
        model.add(P, 2000, 4 * on_its_own_ms)
    assert model.speed_of(P).of(2048) < 1.6 * model.speed_of(D).of(2048)
    model.heard(P, 1.6, 0.8)  # its own steps have become slower: that is believed
    for _ in range(30):
        model.add(P, 2000, 4 * on_its_own_ms)
    assert model.speed_of(P).of(2000) > 3 * on_its_own_ms


def test_a_worker_that_is_slower_for_long_is_seen_as_slower() -> None:
    model = PrefillLines()
    for number in range(40):
        tokens = 50 + 37 * (number % 11)
        model.add(P, tokens, 10 + 0.4 * tokens)
        model.add(D, tokens, 20 + 0.8 * tokens)
    assert model.speed_of(D).of(300) > 1.5 * model.speed_of(P).of(300)
    model.forget(D)
    assert model.speed_of(D).of(300) < 0.9 * (20 + 0.8 * 300)


@pytest.mark.parametrize("took_ms", [0.0, -1.0, 1e-9, 1e9])
def test_no_measurement_makes_a_speed_negative(took_ms: float) -> None:
    model = PrefillLines()
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


def test_bytes_that_delayed_a_token_are_no_part_of_the_price_of_messages() -> None:
    estimates = Estimates(Clock())
    for _ in range(3):
        finished(estimates, kv_ms=40.0, kv_transfer_ms=38.0, kv_bytes=10**8, decode_ms=3.0)
    assert estimates.handoff_ms == pytest.approx(5.0)


def test_each_link_has_its_own_rate_and_is_forgotten_with_its_worker() -> None:
    estimates = Estimates(Clock())
    finished(estimates, kv_bytes=10**9, kv_transfer_ms=100.0)
    estimates.finished(
        Usage(100, 5, 0), Timing(kv_bytes=10**9, kv_transfer_ms=1000.0), decode=P, prefill=D
    )
    links = estimates.links.rates()
    assert (links[P, D], links[D, P]) == (pytest.approx(1e10), pytest.approx(1e9))
    estimates.forget(P)
    assert estimates.links.rates() == {}


def test_a_links_rate_is_not_believed_for_ever() -> None:
    clock = Clock()
    estimates = Estimates(clock)
    finished(estimates, kv_bytes=10**9, kv_transfer_ms=100.0)
    clock.now_s = BELIEVED_S + 1
    assert estimates.links.rates() == {}


def test_how_long_answers_get_is_learned_per_choice() -> None:
    estimates = Estimates(Clock())
    assert estimates.completion_tokens == DEFAULT_COMPLETION_TOKENS
    for _ in range(200):
        estimates.finished(Usage(10, 4 * 30, 0), Timing(), decode=D, prefill=None, num_choices=4)
    assert estimates.completion_tokens == pytest.approx(30, rel=0.05)


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


def test_a_word_that_hardly_differs_solves_no_line_anew() -> None:
    model = PrefillLines()
    model.heard(P, 1.0, 0.5)
    line = model.speed_of(P)
    model.heard(P, 1.005, 0.502)
    assert model.speed_of(P) is line
    model.heard(P, 1.005, 0.51)
    assert model.speed_of(P) is not line
