"""The time of a status counts where it is the only change, and not again and again."""

from __future__ import annotations

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
