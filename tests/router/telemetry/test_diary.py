"""What has happened is kept in order, and a burst of the same is one line of it."""

from __future__ import annotations

from random import Random

from router.telemetry.diary import BURST_S, MAX_CAUSE_CHARS, Diary, Happening
from tests.manual_clock import ManualClock


def lines(diary: Diary, after: int = 0, most: int = 1000) -> list[tuple[str, str, int]]:
    return [(each.kind, each.subject, each.count) for each in diary.after(after, most)]


def test_events_come_oldest_first_with_time_and_cause() -> None:
    clock = ManualClock()
    diary = Diary(clock)
    diary.note(Happening.JOINED, "decode-0", "decode at h:1")
    clock.advance(2.0)
    diary.note(Happening.LOST, "decode-0", "x" * 2 * MAX_CAUSE_CHARS)
    joined, lost = diary.after(0, 10)
    assert (joined.cause, lost.at_s - joined.at_s) == ("decode at h:1", 2.0)
    assert len(lost.cause) == MAX_CAUSE_CHARS


def test_the_same_within_seconds_is_one_event_that_counts_and_comes_again_as_the_newest() -> None:
    clock = ManualClock()
    diary = Diary(clock)
    diary.note(Happening.REFUSED, "batch", "queue_full")
    diary.note(Happening.JOINED, "decode-0")
    seen = diary.last
    for _ in range(531):
        clock.advance(0.01)
        diary.note(Happening.REFUSED, "batch", "queue_full")
    assert lines(diary) == [("joined", "decode-0", 1), ("refused", "batch", 532)]
    assert lines(diary, after=seen) == [("refused", "batch", 532)]
    [burst] = diary.after(seen, 10)
    assert burst.at_s - burst.first_at_s > 5
    clock.advance(BURST_S)
    diary.note(Happening.REFUSED, "batch", "queue_full")
    assert lines(diary, after=burst.number) == [("refused", "batch", 1)]


def test_of_many_the_newest_are_told_and_the_oldest_forgotten() -> None:
    diary = Diary(ManualClock(), max_events=5)
    for at in range(9):
        diary.note(Happening.JOINED, f"decode-{at}")
    assert [subject for _, subject, _ in lines(diary)] == [f"decode-{at}" for at in range(4, 9)]
    assert [subject for _, subject, _ in lines(diary, most=2)] == ["decode-7", "decode-8"]
    assert diary.after(diary.last, 10) == []


def test_whatever_happens_it_holds_no_more_than_it_may_and_numbers_grow() -> None:
    chance, clock = Random(7), ManualClock()
    diary = Diary(clock, max_events=8)
    for _ in range(3000):
        diary.note(chance.choice(list(Happening)), chance.choice("ab"))
        clock.advance(chance.random() * BURST_S)
        told = [each.number for each in diary.after(0, 1000)]
        assert told == sorted(set(told)) and told[-1] == diary.last
        assert len(told) <= 8 and len(diary._bursts) <= 8
