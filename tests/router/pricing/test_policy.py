"""The policy: a pure function, tried on the situations operators meet."""

import pytest
from msgspec.structs import replace

from cluster.identity import WorkerKey
from router.pricing.estimates import DEFAULT_HANDOFF_MS
from router.pricing.policy import choose_route
from router.pricing.route import PrefillSpeed, Route, RouteReason, RoutingView, WorkerView

SPEED = PrefillSpeed(5.0, 0.5)


def worker(name: str, **values: object) -> WorkerView:
    base = WorkerView(
        key=WorkerKey(name, "i"),
        pairing_key="pair",
        speed=SPEED,
        decode_step_ms=20.0,
        kv_bytes_per_token=23_040,
        kv_bytes_per_s=1e9,
    )
    return replace(base, **values)


def view(
    prompt_tokens: int,
    decode: list[WorkerView] | None = None,
    prefill: list[WorkerView] | None = None,
    **values: object,
) -> RoutingView:
    base = RoutingView(
        prompt_tokens=prompt_tokens,
        max_tokens=64,
        block_size_tokens=16,
        decode=tuple([worker("d1")] if decode is None else decode),
        prefill=tuple([worker("p1")] if prefill is None else prefill),
        handoff_ms=DEFAULT_HANDOFF_MS,
    )
    return replace(base, **values)


def names(route: Route) -> tuple[str, list[str]]:
    return route.decode.worker_id, [key.worker_id for key in route.prefill]


@pytest.mark.parametrize("prompt_tokens", [40, 200, 2000])
def test_a_first_question_on_an_idle_fleet_goes_through_the_prefill_worker(
    prompt_tokens: int,
) -> None:
    route = choose_route(view(prompt_tokens))
    assert names(route) == ("d1", ["p1"])


@pytest.mark.parametrize("prompt_tokens", [40, 500, 2008])
def test_a_prompt_that_the_decode_worker_has_almost_whole_stays_there(prompt_tokens: int) -> None:
    cached = (prompt_tokens - 1) // 16 * 16
    both = {"matched_tokens": cached}
    route = choose_route(view(prompt_tokens, [worker("d1", **both)], [worker("p1", **both)]))
    assert names(route) == ("d1", [])
    assert route.reason is RouteReason.LOCAL_CHEAPER


def test_the_next_turn_of_a_chat_stays_where_its_answer_is_cached() -> None:
    decode, prefill = worker("d1", matched_tokens=80), worker("p1", matched_tokens=32)
    assert names(choose_route(view(120, [decode], [prefill]))) == ("d1", [])


def test_a_long_prompt_leaves_even_a_partly_cached_decode_worker_that_is_busy() -> None:
    decode = worker("d1", matched_tokens=512, num_running=6)
    assert names(choose_route(view(2048, [decode]))) == ("d1", ["p1"])


def test_a_prefill_worker_with_a_long_queue_is_passed_by() -> None:
    route = choose_route(view(200, prefill=[worker("p1", waiting_tokens=4000)]))
    assert names(route) == ("d1", [])
    route = choose_route(view(200, prefill=[worker("p1", waiting_tokens=4000), worker("p2")]))
    assert names(route) == ("d1", ["p2", "p1"])


def test_without_prefill_workers_the_decode_worker_does_both() -> None:
    route = choose_route(view(500, prefill=[]))
    assert (names(route), route.reason) == (("d1", []), RouteReason.NO_PREFILL_WORKER)


def test_workers_that_do_not_pair_are_never_put_together() -> None:
    other = worker("p2", pairing_key="other")
    route = choose_route(view(500, prefill=[other]))
    assert (names(route), route.reason) == (("d1", []), RouteReason.NOT_PAIRED)
    decode = [worker("d1"), worker("d2", pairing_key="other", num_running=1)]
    slow = worker("p1", waiting_tokens=100_000)
    assert names(choose_route(view(500, decode, [slow, other]))) == ("d2", ["p2"])


def test_a_cached_prefix_draws_a_request_to_its_workers() -> None:
    decode = [worker("d1"), worker("d2", matched_tokens=480), worker("d3")]
    prefill = [worker("p1"), worker("p2"), worker("p3", matched_tokens=480)]
    slow_link = [replace(item, kv_bytes_per_s=1e8) for item in decode]
    assert names(choose_route(view(520, slow_link, prefill))) == ("d2", ["p3", "p1", "p2"])


def test_a_decode_worker_that_is_full_or_crowded_is_passed_by() -> None:
    full = worker("d1", free_tokens=100)
    assert names(choose_route(view(200, [full, worker("d2")])))[0] == "d2"
    crowded = worker("d1", num_running=30)
    assert names(choose_route(view(200, [crowded, worker("d2", num_running=3)])))[0] == "d2"


def test_equal_prices_go_to_the_fewest_tokens_in_flight() -> None:
    decode = [worker("d1", in_flight_tokens=900), worker("d2", in_flight_tokens=20)]
    prefill = [worker("p1", in_flight_tokens=50), worker("p2", in_flight_tokens=0)]
    for turn in range(4):
        route = choose_route(view(100, decode, prefill, turn=turn))
        assert names(route) == ("d2", ["p2", "p1"])


def test_equal_workers_take_turns() -> None:
    decode = [worker(f"d{i}") for i in range(3)]
    prefill = [worker(f"p{i}") for i in range(3)]
    routes = [choose_route(view(100, decode, prefill, turn=turn)) for turn in range(6)]
    assert sorted(route.decode.worker_id for route in routes) == [
        "d0",
        "d0",
        "d1",
        "d1",
        "d2",
        "d2",
    ]
    firsts = sorted(route.prefill[0].worker_id for route in routes)
    assert firsts == ["p0", "p0", "p1", "p1", "p2", "p2"]


def test_within_the_margin_the_pair_is_taken_when_a_whole_block_is_lacking() -> None:
    slow = PrefillSpeed(200.0, 0.5)
    decode, prefill = worker("d1", speed=slow), worker("p1", speed=slow)
    lacking = view(100, [replace(decode, matched_tokens=84)], [prefill], handoff_ms=15.0)
    lacking = replace(lacking, prefill=(replace(prefill, matched_tokens=80),))
    assert choose_route(lacking).reason is RouteReason.PAIR_WITHIN_MARGIN
    nearly = replace(lacking, decode=(replace(decode, matched_tokens=96),))
    assert choose_route(nearly).reason is RouteReason.LOCAL_CHEAPER


def test_every_term_is_a_number_of_milliseconds_and_the_total_is_their_sum() -> None:
    decode = worker("d1", matched_tokens=64, waiting_tokens=10, num_running=3, free_tokens=10)
    route = choose_route(view(100, [decode], [worker("p1", waiting_tokens=20)]))
    alone, pair = route.candidates
    assert alone.cost.queue_ms == pytest.approx(5.0)
    assert alone.cost.prefill_ms == pytest.approx(5.0 + 36 * 0.5)
    assert alone.cost.interference_ms == pytest.approx(3 * 36 * 0.5)
    row_ms = 0.04 * 20 / (1 + 3 * 0.04)
    assert alone.cost.decode_ms == pytest.approx(3 * row_ms * 32) == pair.cost.decode_ms
    assert alone.cost.memory_ms == pytest.approx(64 * 20) == pair.cost.memory_ms
    assert pair.cost.transfer_ms == pytest.approx(36 * 23_040 / 1e9 * 1000)
    assert pair.cost.handoff_ms == DEFAULT_HANDOFF_MS
    assert pair.cost.interference_ms == 0
    cost = pair.cost
    assert cost.total_ms == pytest.approx(
        cost.queue_ms
        + cost.prefill_ms
        + cost.transfer_ms
        + cost.handoff_ms
        + cost.decode_ms
        + cost.memory_ms
    )


def test_a_large_fleet_is_priced_without_looking_at_every_pair() -> None:
    decode = [worker(f"d{i}") for i in range(64)]
    prefill = [worker(f"p{i}") for i in range(64)]
    route = choose_route(view(100, decode, prefill))
    assert len(route.candidates) == 64 + 64 + 2
