"""The time of a status counts where it is the only change, and not again and again."""

from __future__ import annotations

from worker.adapters.shelf_scan import Signature
from worker.adapters.steady_signatures import AGAIN_S, SteadySignatures


def sign(changed_ns: int, *, size: int = 7) -> Signature:
    return ((1, 2, changed_ns), (size, 4, changed_ns))


class Looks:
    """At one adapter."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steady = SteadySignatures(lambda: self.now_s)

    def look(self, now: Signature | None, *passed_over: str) -> Signature | None:
        return self.steady.look({"a": now}, passed_over)["a"]


def test_a_time_of_status_counts_once_and_after_a_while_again() -> None:
    looks = Looks()
    assert looks.look(sign(1)) == sign(1)
    assert [looks.look(sign(n)) for n in (2, 3, 4, 2)] == [sign(2)] * 4
    looks.now_s += AGAIN_S
    assert looks.look(sign(5)) == sign(5)
    assert looks.look(sign(6)) == sign(5)


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
