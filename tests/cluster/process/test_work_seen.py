"""Work is what happened between two looks."""

from __future__ import annotations

from cluster.process.signs_of_life import TICKS_OF_WORK, SignsOfLife
from cluster.process.work_seen import WorkSeen


def signs(ticks: int, *, is_busy: bool = False) -> SignsOfLife:
    return SignsOfLife(is_stopped=False, is_busy=is_busy, cpu_ticks=ticks)


def test_a_process_works_when_it_has_used_its_core_since_the_look_before() -> None:
    seen = iter([signs(100), signs(100 + TICKS_OF_WORK), signs(100 + TICKS_OF_WORK)])
    work = WorkSeen(lambda: next(seen))
    assert [work.look() for _ in range(3)] == [False, True, False]


def test_a_first_look_and_one_after_another_sign_see_only_what_runs_now() -> None:
    seen = iter([signs(100, is_busy=True), signs(900)])
    work = WorkSeen(lambda: next(seen))
    assert work.look() is True
    work.forget()
    assert work.look() is False


def test_what_nobody_sees_is_neither_work_nor_a_standstill() -> None:
    assert WorkSeen(lambda: None).look() is None
