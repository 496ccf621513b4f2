"""What answers have told is written to where other routers can have it, a little later.

    told -- within INTERVAL_S --> a batch -- the store is there --> shared
                                              '-- away --> with the next ones
    forgotten -- within INTERVAL_S --> taken away there, unless somebody else has taken it

A client may so be ahead of what is shared by that time: who goes on with its answer makes those
tokens again, the same ones. A write says also that the answer runs here, and hears if somebody else
goes on with it.

A turn writes MOST_AT_ONCE answers, those first that were written longest ago: each takes the loop
and the store some 10 us, and thousands of streams are not to hold either. Each then waits a little
longer for its turn: `longest_unwritten_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from cluster.deadline import Clock, Sleep
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeptAnswers
from router.resume.shared_answers import AnswersAway, SharedAnswers

INTERVAL_S = 0.05
MOST_AT_ONCE = 128
"""Answers, and as many that are taken away: a few milliseconds of the loop, a few hundredths of the
store's time."""
SIGN_OF_LIFE_S = 1.0
"""Of an answer that gets no tokens for a while."""


def longest_unwritten_s(max_answers: int) -> float:
    """So long one of so many may be shared as it was, while the store answers at once."""
    num_turns = math.ceil(max_answers / MOST_AT_ONCE)
    return SIGN_OF_LIFE_S + num_turns * INTERVAL_S


class WriteBehind:
    """`run` belongs to the process."""

    def __init__(
        self, answers: KeptAnswers, shared: SharedAnswers | None, clock: Clock, sleep: Sleep
    ) -> None:
        """`shared` None: nobody else goes on with this router's answers."""
        self._answers = answers
        self._shared = shared
        self._clock = clock
        self._sleep = sleep
        self._last_sign_s = clock()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Once."""
        now_s = self._clock()
        if now_s - self._last_sign_s >= SIGN_OF_LIFE_S:
            self._last_sign_s = now_s
            self._answers.look()
        due = list(islice(self._due(now_s), MOST_AT_ONCE))
        for each in due:
            each.written_s = now_s
            self._answers.write(each)
        if self._shared is None:
            return
        if forgotten := self._answers.take_forgotten(MOST_AT_ONCE):
            await self._remove(self._shared, forgotten)
        if due := [each for each in due if each.is_kept]:
            await self._write(self._shared, due)

    def _due(self, now_s: float) -> Iterator[KeptAnswer]:
        for each in self._answers:
            is_silent = each.is_running and now_s - each.written_s >= SIGN_OF_LIFE_S
            if is_silent or _has_more(each):
                yield each

    async def _remove(self, shared: SharedAnswers, forgotten: dict[bytes, int]) -> None:
        try:
            await shared.remove(forgotten)
        except AnswersAway:
            self._answers.forget_later(forgotten)

    async def _write(self, shared: SharedAnswers, due: list[KeptAnswer]) -> None:
        for each in due:
            each.may_be_shared = True
        try:
            is_ours = await shared.write(due)
        except AnswersAway:
            return
        for each, ours in zip(due, is_ours, strict=True):
            if not ours:
                each.taken()
                each.may_be_shared = False
                self._answers.forget(each)


def _has_more(answer: KeptAnswer) -> bool:
    return answer.has_news or answer.num_shared < len(answer.batches)
