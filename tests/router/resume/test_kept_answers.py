"""What a router keeps of answers is bounded: in number, in bytes, by tenant, and in time."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from cluster.errors import RequestGivenUp, ResumedElsewhere, WorkerLost
from cluster.generation import GeneratedToken
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import ANSWERS_PART, KeepingLimits, KeptAnswers

LIMITS = KeepingLimits(within_s=60.0, max_bytes=1_000_000, max_answers=8)


class Kept:
    """Answers, and their clock."""

    def __init__(self, limits: KeepingLimits = LIMITS) -> None:
        self.now_s = 0.0
        self.answers = KeptAnswers(limits, lambda: self.now_s)

    def begin(self, name: str, tenant: str = "a", head: bytes = b"") -> KeptAnswer:
        answer = KeptAnswer(name.encode(), tenant, head, self.answers)
        answer.begun(FirstPart("pairing", 0), 10)
        return answer

    def names(self) -> set[str]:
        return {each.key.decode() for each in self.answers}


def test_the_oldest_whose_connection_is_over_makes_way_and_those_that_run_do_not() -> None:
    kept = Kept()
    first, second, *_ = [kept.begin(f"{number}") for number in range(4)]
    assert not kept.begin("no place").is_kept
    second.left(None)
    first.left(None)
    assert kept.begin("another").is_kept
    assert kept.names() == {"0", "2", "3", "another"}
    assert (second.is_kept, first.is_kept) == (False, True)


def test_a_tenant_leaves_half_of_the_places_and_bytes_to_others() -> None:
    kept = Kept()
    mine = [kept.begin(f"mine{number}") for number in range(6)]
    assert [each.is_kept for each in mine] == [True] * 4 + [False] * 2
    assert all(kept.begin(f"other{number}", "b").is_kept for number in range(4))
    assert not kept.begin("a third one", "c").is_kept


def test_what_has_no_place_in_its_tenants_part_costs_no_other_tenant_its_own() -> None:
    kept = Kept()
    kept.begin("of another", "b").left(None)
    for number in range(4):
        kept.begin(f"mine{number}")
    assert not kept.begin("one more").is_kept
    assert not kept.begin("too large", head=bytes(1_000_000 // ANSWERS_PART)).is_kept
    assert "of another" in kept.names()


def test_an_answer_that_grows_too_large_is_kept_no_more_and_its_client_runs_on() -> None:
    kept = Kept()
    answer = kept.begin("large")
    while answer.is_kept:
        answer.relayed(ChoiceTokens(0, [GeneratedToken(70_000)] * 100))
        kept.answers.write(answer)
    assert (len(kept.answers), kept.answers.num_bytes) == (0, 0)
    answer.relayed(ChoiceTokens(0, [GeneratedToken(1)]))
    assert not kept.begin("with a long prompt", head=bytes(1_000_000 // ANSWERS_PART)).is_kept


def test_what_has_cost_two_workers_is_not_gone_on_with() -> None:
    kept = Kept()
    given_up, lost = kept.begin("given up"), kept.begin("lost")
    given_up.left(RequestGivenUp("two workers"))
    lost.left(WorkerLost("one worker"))
    assert kept.names() == {"lost"}


def test_one_of_the_same_name_makes_way_and_its_client_gets_no_more() -> None:
    kept = Kept()
    before, after = kept.begin("one"), kept.begin("one")
    assert list(kept.answers) == [after]
    with pytest.raises(ResumedElsewhere):
        before.relayed(ChoiceTokens(0, [GeneratedToken(1)]))
    after.relayed(ChoiceTokens(0, [GeneratedToken(1)]))


def test_whatever_happens_the_sums_are_those_of_what_is_kept() -> None:
    chance, kept = Random(3), Kept(KeepingLimits(within_s=9, max_bytes=40_000, max_answers=9))
    running: list[KeptAnswer] = []
    for step in range(3000):
        kept.now_s += chance.random()
        if chance.random() < 0.3 or not running:
            running.append(kept.begin(f"{step % 23}", chance.choice("abc"), bytes(step % 200)))
        answer = chance.choice(running)
        if chance.random() < 0.4:
            running.remove(answer)
            answer.left(None)
        else:
            with suppress(ResumedElsewhere):  # another one of its name has come
                answer.relayed(ChoiceTokens(0, [GeneratedToken(step)] * chance.randint(1, 50)))
            kept.answers.write(answer)
        kept.answers.look()
        each = list(kept.answers)
        assert kept.answers.num_bytes == sum(one.num_bytes for one in each) <= 40_000
        assert len(each) <= 9
    for answer in running:
        answer.left(None)
    kept.now_s += 9
    kept.answers.look()
    assert (len(kept.answers), kept.answers.num_bytes) == (0, 0)


class Watched(KeptAnswer):
    """It counts how often it is looked at."""

    num_looks = 0
    _runs = False

    @property
    def is_running(self) -> bool:
        Watched.num_looks += 1
        return self._runs

    @is_running.setter
    def is_running(self, value: bool) -> None:
        self._runs = value


def test_a_large_answer_for_which_many_make_way_takes_a_look_at_each_of_them() -> None:
    """And none at those that stay, of whomever: a look over all for each would hold the loop."""
    num_small = 1000
    limits = KeepingLimits(within_s=60.0, max_bytes=64 * 40_000, max_answers=4 * num_small)
    answers = KeptAnswers(limits, lambda: 0.0)

    def begin(name: str, tenant: str, num_bytes: int) -> Watched:
        answer = Watched(name.encode(), tenant, bytes(num_bytes), answers)
        answer.begun(FirstPart("pairing", 0), 10)
        return answer

    others = [begin(f"other{n}", "b", 0) for n in range(num_small)]
    mine = [begin(f"mine{n}", "a", 960) for n in range(num_small)]
    for each in (*others, *mine):
        each.left(None)
    Watched.num_looks = 0
    assert begin("large", "a", 39_000).is_kept
    num_gone = sum(not each.is_kept for each in (*others, *mine))
    assert 0 < num_gone < 60
    assert Watched.num_looks <= 2 * num_gone + 2
