"""The answers that another connection may go on with, of one router: so many, for so long.

    kept -> runs ... -> left -> the time is over, or the place is needed -> forgotten
                 '-> larger than it may be -> forgotten: nobody goes on with it

A tenant has half of what there is, and an answer a 64th part. Those whose connection is over make
way for new ones, the oldest first, a tenant's own before others'; where all run, a new one is not
kept. What is forgotten here is to be taken away from where routers share it: `take_forgotten`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from cluster.deadline import Clock
from cluster.errors import RequestGivenUp, SplitserveError
from router.resume.kept_answer import KeptAnswer
from router.resume.left_answers import LeftAnswers

TENANTS_PART = 2
ANSWERS_PART = 64
MAX_FORGOTTEN = 65_536
"""Waiting to be taken away from a store that is not there: 100 bytes each, or about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingLimits:
    """Of one router."""

    within_s: float
    """After its connection is over an answer is kept so long."""
    max_bytes: int
    max_answers: int


class KeptAnswers:
    """An AnswersPlace. All calls from the event loop; `look` about once a second or sooner."""

    def __init__(self, limits: KeepingLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._answers: dict[bytes, KeptAnswer] = {}
        """By key; those first that were written longest ago."""
        self._left = LeftAnswers()
        """Those of them whose connection is over, in the order in which it ended."""
        self._num_bytes = 0
        self._counted: dict[bytes, int] = {}
        """Bytes of each, as they are in the sums."""
        self._num_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()
        """Both by tenant."""
        self._forgotten: dict[bytes, int] = {}
        """Epochs of those that other routers may still have, by key."""

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[KeptAnswer]:
        """Those first that were written longest ago."""
        return iter(list(self._answers.values()))

    @property
    def num_bytes(self) -> int:
        """Of all."""
        return self._num_bytes

    def keep(self, answer: KeptAnswer) -> bool:
        """See AnswersPlace; one with the same key makes way, and its client gets no more."""
        before = self._answers.get(answer.key)
        if before is not None and before is not answer:
            before.taken()
            self.forget(before)
        if not self._makes_room_for(answer):
            self.forget(answer)
            return False
        self._forgotten.pop(answer.key, None)
        self._answers[answer.key] = answer
        self._num_of[answer.tenant] += 1
        self._count(answer)
        if not answer.is_running:
            self._left.add(answer)
        return True

    def find(self, key: bytes) -> KeptAnswer | None:
        """All of it written. None: there is none, or its time is over."""
        answer = self._answers.get(key)
        if answer is None or self._is_late(answer):
            return None
        self.write(answer)
        return answer

    def write(self, answer: KeptAnswer) -> None:
        """What is new of it becomes a batch."""
        answer.write()
        if self._answers.get(answer.key) is answer:
            self._answers[answer.key] = self._answers.pop(answer.key)
            self._count(answer)
            self._make_room(answer)

    def left(self, answer: KeptAnswer, error: SplitserveError | None) -> None:
        """See AnswersPlace. What has cost two workers is not gone on with."""
        answer.left_s = self._clock()
        if isinstance(error, RequestGivenUp):
            self.forget(answer)
        elif self._answers.get(answer.key) is answer:
            self._left.add(answer)

    def forget(self, answer: KeptAnswer) -> None:
        """Nobody goes on with it; idempotent."""
        answer.forgotten()
        if answer.may_be_shared:
            answer.may_be_shared = False
            self._note_forgotten(answer)
        if self._answers.get(answer.key) is answer:
            del self._answers[answer.key]
            self._left.remove(answer)
            num_bytes = self._counted.pop(answer.key)
            self._num_bytes -= num_bytes
            self._bytes_of[answer.tenant] -= num_bytes
            self._num_of[answer.tenant] -= 1
            if not self._num_of[answer.tenant]:
                del self._num_of[answer.tenant], self._bytes_of[answer.tenant]

    def take_forgotten(self, num_most: int) -> dict[bytes, int]:
        """Keys and epochs of what others may still have, of so many; once. Who cannot have them
        taken away now gives them back with `forget_later`."""
        keys = list(islice(self._forgotten, num_most))
        return {key: self._forgotten.pop(key) for key in keys}

    def forget_later(self, forgotten: dict[bytes, int]) -> None:
        """They are still to be taken away, unless an answer of that name is kept again."""
        later = {key: each for key, each in forgotten.items() if key not in self._answers}
        self._forgotten = later | self._forgotten
        self._bound_forgotten()

    def look(self) -> None:
        """Forgets those whose time is over."""
        for each in self:
            if self._is_late(each):
                self.forget(each)

    def _note_forgotten(self, answer: KeptAnswer) -> None:
        self._forgotten[answer.key] = max(answer.epoch, self._forgotten.get(answer.key, 0))
        self._bound_forgotten()

    def _bound_forgotten(self) -> None:
        """Those of longest ago have the least of their time left there."""
        while len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def _makes_room_for(self, answer: KeptAnswer) -> bool:
        """False: there is none."""
        size = answer.num_bytes
        if size > self.limits.max_bytes // ANSWERS_PART:
            return False
        while not self._holds(answer.tenant, 1, size):
            if (oldest := self._oldest_left(answer.tenant, 1, size)) is None:
                return False
            self.forget(oldest)
        return True

    def _is_late(self, answer: KeptAnswer) -> bool:
        return not answer.is_running and self._clock() - answer.left_s >= self.limits.within_s

    def _count(self, answer: KeptAnswer) -> None:
        """Its bytes, as they are now."""
        num_bytes = answer.num_bytes
        num_more = num_bytes - self._counted.get(answer.key, 0)
        self._num_bytes += num_more
        self._bytes_of[answer.tenant] += num_more
        self._counted[answer.key] = num_bytes

    def _make_room(self, answer: KeptAnswer) -> None:
        """It has grown: others make way, or it is kept no more."""
        tenant = answer.tenant
        while answer.is_kept and not self._holds(tenant):
            self.forget(self._oldest_left(tenant) or answer)
        if answer.num_bytes > self.limits.max_bytes // ANSWERS_PART:
            self.forget(answer)

    def _holds(self, tenant: str, num_more: int = 0, more_bytes: int = 0) -> bool:
        """So much of that tenant, beside what is there."""
        num, num_bytes = len(self._answers) + num_more, self._num_bytes + more_bytes
        is_bounded = num <= self.limits.max_answers and num_bytes <= self.limits.max_bytes
        return is_bounded and self._holds_of(tenant, num_more, more_bytes)

    def _holds_of(self, tenant: str, num_more: int, more_bytes: int) -> bool:
        """As far as that tenant's own part goes."""
        num, num_bytes = self._num_of[tenant] + num_more, self._bytes_of[tenant] + more_bytes
        limits, part = self.limits, TENANTS_PART
        return num <= limits.max_answers // part and num_bytes <= limits.max_bytes // part

    def _oldest_left(
        self, tenant: str, num_more: int = 0, more_bytes: int = 0
    ) -> KeptAnswer | None:
        """That makes way for so much of that tenant: its own, and others' where its part holds."""
        own = self._left.oldest_of(tenant)
        if own is not None or not self._holds_of(tenant, num_more, more_bytes):
            return own
        return self._left.oldest()
