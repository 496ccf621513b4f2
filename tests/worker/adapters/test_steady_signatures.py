"""The time of a status counts where it is the only change, and not again and again."""

from __future__ import annotations

import pytest

from worker.adapters.shelf_scan import Signature
from worker.adapters.steady_signatures import FIRST_S, LONGEST_S, SteadySignatures


def sign(changed_ns: int, *, size: int = 7) -> Signature:
    return ((1, 2, changed_ns), (size, 4, changed_ns))


class Looks:
    """At one adapter."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steady = SteadySignatures(lambda: self.now_s)

    def look(self, now: Signature | None, *passed_over: str) -> Signature | None:
        return self.steady.look({"a": now}, passed_over)["a"]


def test_a_time_of_status_counts_at_once_and_then_ever_more_rarely() -> None:
    """As a mount that makes it up has another at each look."""
    looks = Looks()
    looks.look(sign(0))
    counted: list[float] = []
    for number in range(1, 4000):
        if looks.look(sign(number)) == sign(number):
            counted.append(looks.now_s)
        looks.now_s += 1.0
    rests = [after - before for before, after in zip(counted, counted[1:], strict=False)]
    doubling = [FIRST_S * 2**number for number in range(9)]
    assert counted[0] == 0.0 and rests[:9] == doubling
    assert len(rests) > 10 and set(rests[9:]) == {LONGEST_S}


@pytest.mark.parametrize(
    ("num_adapters", "reading_s", "most_share"), [(1, 0.5, 0.1), (20, 2.0, 0.1), (20, 5.0, 0.16)]
)
def test_a_mount_that_makes_that_time_up_is_read_a_small_part_of_the_time(
    num_adapters: int, reading_s: float, most_share: float
) -> None:
    """However long a reading takes, from the first minute on; up to the longest rest."""
    now_s, read_s, rounds = 0.0, 0.0, list[float]()
    steady = SteadySignatures(lambda: now_s)
    taken, before = dict[str, Signature | None](), dict[str, Signature | None]()
    for number in range(20_000):
        found = steady.look({f"a{i}": sign(number) for i in range(num_adapters)}, ())
        due = [name for name, seen in found.items() if before.get(name) == seen != taken.get(name)]
        before, took_s = found, dict[str, float]()
        began_s = now_s
        for name in due:
            taken[name], took_s[name] = found[name], reading_s
            now_s += reading_s
        steady.note_read(took_s)
        if due:
            rounds.append(began_s)
            read_s += now_s - began_s
        if now_s > 2 * LONGEST_S and len(rounds) > 4:
            break
        now_s += 1.0
    length_s = num_adapters * reading_s
    assert read_s <= most_share * now_s + 2 * length_s, "the first one, and the last"
    rests = [after - start for start, after in zip(rounds[1:], rounds[2:], strict=False)]
    assert all(rest >= length_s + min(10 * length_s, LONGEST_S) for rest in rests)


def test_a_rest_begins_anew_once_the_files_are_read() -> None:
    looks = Looks()
    looks.look(sign(1))
    looks.look(sign(2))
    looks.now_s += 100.0
    looks.steady.note_read({"a": 0.1, "other": 100.0})
    assert looks.look(sign(3)) == sign(2)
    looks.now_s += FIRST_S
    assert looks.look(sign(3)) == sign(3)


def test_a_swap_that_is_taken_back_is_seen_both_times() -> None:
    looks = Looks()
    looks.look(sign(1))
    assert looks.look(sign(2)) == sign(2)
    looks.now_s += 60.0
    assert looks.look(sign(1)) == sign(1)


def test_files_that_are_renamed_into_place_one_after_the_other_are_both_seen() -> None:
    looks = Looks()
    settings, weights = sign(1)
    looks.look((settings, weights))
    settings = (1, 2, 5)
    assert looks.look((settings, weights)) == (settings, weights)
    looks.now_s += 5.0
    weights = (7, 4, 6)
    assert looks.look((settings, weights)) == (settings, weights)


def test_what_changes_while_it_rests_counts_at_the_end_of_the_rest() -> None:
    looks = Looks()
    looks.look(sign(1))
    assert [looks.look(sign(n)) for n in (2, 3, 4)] == [sign(2)] * 3
    looks.now_s += FIRST_S
    assert looks.look(sign(4)) == sign(4)


def test_after_a_long_quiet_the_rests_are_short_again() -> None:
    looks = Looks()
    for number in range(600):
        looks.look(sign(number))
        looks.now_s += 1.0
    looks.look(sign(600))
    looks.now_s += 2 * LONGEST_S
    looks.look(sign(600))  # a rest's end
    looks.now_s += 2 * LONGEST_S
    assert looks.look(sign(601)) == sign(601)
    looks.now_s += FIRST_S
    assert looks.look(sign(602)) == sign(602)


def test_other_contents_count_at_once() -> None:
    looks = Looks()
    for changed_ns in (1, 2, 3):
        looks.look(sign(changed_ns))
    assert looks.look(sign(4, size=8)) == sign(4, size=8)


def test_of_what_was_never_read_that_time_says_nothing() -> None:
    looks = Looks()
    looks.look(sign(1))
    assert looks.look(sign(2), "a") == sign(1)
    assert looks.look(sign(2)) == sign(2)


def test_what_cannot_be_looked_at_is_not_forgotten_and_what_is_gone_is() -> None:
    looks = Looks()
    looks.look(sign(1))
    looks.look(sign(2))
    assert looks.look(None) is None
    assert looks.look(sign(3)) == sign(2)
    assert looks.steady.look({}, ()) == {}
    assert looks.look(sign(3)) == sign(3)
