"""A decode worker is judged by what it makes while there is something for it to do."""

import pytest

from router.fleet.standstill import Standstill
from tests.virtual_time import VirtualTime

LIMIT_S = 8.0


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
    standstill.heard(receives=True)
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
    standstill.heard(receives=True)
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
