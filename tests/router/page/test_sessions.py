"""Who has signed in, and for how long."""

from __future__ import annotations

from router.page.sessions import IDLE_S, MAX_SESSIONS, MOST_S, PageSessions
from tests.manual_clock import ManualClock


def test_a_session_lives_while_it_is_seen_and_no_longer_than_a_shift() -> None:
    clock = ManualClock()
    sessions = PageSessions(clock)
    session_id = sessions.begin()
    for _ in range(int(MOST_S / IDLE_S)):
        clock.advance(IDLE_S)
        assert sessions.sees(session_id)
    clock.advance(1)
    assert not sessions.sees(session_id)


def test_one_that_nobody_shows_is_over() -> None:
    clock = ManualClock()
    sessions = PageSessions(clock)
    session_id = sessions.begin()
    clock.advance(IDLE_S + 1)
    assert not sessions.sees(session_id)
    clock.advance(-IDLE_S)
    assert not sessions.sees(session_id)


def test_signing_out_ends_one_and_no_other() -> None:
    sessions = PageSessions(ManualClock())
    first, second = sessions.begin(), sessions.begin()
    sessions.end(first)
    sessions.end(first)
    assert not sessions.sees(first) and sessions.sees(second)
    assert not sessions.sees("") and not sessions.sees("made up")


def test_there_are_so_many_and_who_was_seen_last_the_longest_ago_goes() -> None:
    clock = ManualClock()
    sessions = PageSessions(clock)
    ids = []
    for _ in range(MAX_SESSIONS):
        clock.advance(0.1)
        ids.append(sessions.begin())
    clock.advance(0.1)
    assert sessions.sees(ids[0])
    newcomer = sessions.begin()
    assert not sessions.sees(ids[1])
    assert sessions.sees(ids[0]) and sessions.sees(newcomer)
