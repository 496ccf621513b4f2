"""A decode worker is judged by what it makes while there is something for it to do."""

import pytest

from cluster.generation import EngineLoad
from router.fleet.standstill import Standstill
from tests.virtual_time import VirtualTime

LIMIT_S = 8.0
RECEIVES = EngineLoad(num_leases=1)


def left_to_compute(num_tokens: int, *, num_prompts: int = 1) -> EngineLoad:
    return EngineLoad(waiting_prefill_tokens=num_tokens, waiting_prompts=num_prompts)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def standstill(time: VirtualTime) -> Standstill:
    return Standstill(time)


def stands(standstill: Standstill) -> bool:
    return standstill.has_lasted(LIMIT_S)


def test_a_worker_with_a_request_and_no_token_stands_once_the_limit_has_passed(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=False)
    time.now_s += LIMIT_S - 1
    assert not stands(standstill)
    time.now_s += 1
    assert stands(standstill)


def test_requests_that_give_up_early_add_up(standstill: Standstill, time: VirtualTime) -> None:
    for _ in range(4):
        assert not stands(standstill)
        task = standstill.given(is_elsewhere=False)
        time.now_s += LIMIT_S / 4
        task.left()
        time.now_s += 100 * LIMIT_S  # with nothing to do
    assert stands(standstill)


def test_a_token_for_anybody_is_a_new_beginning(standstill: Standstill, time: VirtualTime) -> None:
    standstill.given(is_elsewhere=False)
    other = standstill.given(is_elsewhere=False)
    time.now_s += LIMIT_S
    standstill.made(time())
    assert not stands(standstill)
    other.left()
    time.now_s += LIMIT_S
    assert stands(standstill)


def test_a_good_end_is_a_new_beginning_though_nothing_is_left_to_do(
    standstill: Standstill, time: VirtualTime
) -> None:
    task = standstill.given(is_elsewhere=False)
    time.now_s += LIMIT_S
    task.left()
    assert stands(standstill)
    standstill.ended_well()
    assert not stands(standstill)


def test_a_worker_that_waits_for_a_prefill_elsewhere_does_not_stand(
    standstill: Standstill, time: VirtualTime
) -> None:
    task = standstill.given(is_elsewhere=True)
    standstill.heard(RECEIVES)
    time.now_s += 100 * LIMIT_S
    assert not stands(standstill)
    task.came_back()
    time.now_s += LIMIT_S - 1
    assert not stands(standstill)
    time.now_s += 1
    assert stands(standstill)


def test_a_worker_that_never_asks_for_the_prompts_of_others_stands(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=True)
    time.now_s += LIMIT_S
    assert stands(standstill)


def test_what_it_receives_is_no_excuse_for_what_is_its_turn(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.heard(RECEIVES)
    standstill.given(is_elsewhere=True)
    standstill.given(is_elsewhere=False)
    time.now_s += LIMIT_S
    assert stands(standstill)


def test_a_task_leaves_once_whatever_comes_after(standstill: Standstill, time: VirtualTime) -> None:
    task, other = standstill.given(is_elsewhere=True), standstill.given(is_elsewhere=False)
    task.left()
    task.came_back()
    task.left()
    other.left()
    time.now_s += LIMIT_S
    assert not stands(standstill)
    standstill.given(is_elsewhere=True)
    time.now_s += LIMIT_S
    assert stands(standstill)


def test_a_worker_that_computes_a_long_prompt_itself_does_not_stand(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=False)
    for num_tokens in range(100_000, 0, -10_000):
        standstill.heard(left_to_compute(num_tokens))
        time.now_s += LIMIT_S - 1
        assert not stands(standstill)
    standstill.heard(left_to_compute(10_000))
    time.now_s += 1
    assert stands(standstill)


def test_what_a_request_takes_along_that_leaves_is_nothing_made(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=False)
    other = standstill.given(is_elsewhere=False)
    standstill.heard(left_to_compute(9_000, num_prompts=2))
    time.now_s += LIMIT_S
    other.left()
    standstill.heard(left_to_compute(5_000, num_prompts=2))
    assert stands(standstill)


def test_what_another_routers_request_takes_along_is_nothing_made_either(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=False)
    standstill.heard(left_to_compute(9_000, num_prompts=2))
    time.now_s += LIMIT_S
    standstill.heard(left_to_compute(5_000, num_prompts=1))
    assert stands(standstill)


def test_a_prompt_that_is_joined_by_another_one_is_still_seen_to_proceed(
    standstill: Standstill, time: VirtualTime
) -> None:
    standstill.given(is_elsewhere=False)
    standstill.heard(left_to_compute(9_000))
    time.now_s += LIMIT_S
    standstill.heard(left_to_compute(8_000, num_prompts=2))
    assert not stands(standstill)
