"""The answers that another connection may go on with, of one router: so many, for so long.

    kept -> runs ... -> left -> the time is over, or the place is needed -> forgotten
                 '-> larger than it may be -> forgotten: nobody goes on with it

A tenant has half of what there is, and an answer a 64th part. Those whose connection is over make
way for new ones, the oldest first, a tenant's own before others'; where all run, a new one is not
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.errors import RequestGivenUp, SplitserveError
from router.resume.kept_answer import KeptAnswer

TENANTS_PART = 2
ANSWERS_PART = 64


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
        """By key; in the order in which they came, or were left."""
        self._counted: dict[bytes, int] = {}
        """Bytes of each, as they are in the sums."""
        self._num_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()
        """Both by tenant."""

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[KeptAnswer]:
        return iter(list(self._answers.values()))

    @property
    def num_bytes(self) -> int:
        """Of all."""
        return sum(self._counted.values())

    def keep(self, answer: KeptAnswer) -> bool:
        """See AnswersPlace; one with the same key makes way."""
        if (before := self._answers.get(answer.key)) is not None:
            self.forget(before)
        while not self._has_place(answer):
            if (oldest := self._oldest_left(answer.tenant)) is None:
                return False
            self.forget(oldest)
        self._answers[answer.key] = answer
        self._num_of[answer.tenant] += 1
        self._count(answer)
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
        if answer.key in self._answers:
            self._count(answer)

    def left(self, answer: KeptAnswer, error: SplitserveError | None) -> None:
        """See AnswersPlace. What has cost two workers is not gone on with."""
        answer.left_s = self._clock()
        if isinstance(error, RequestGivenUp):
            self.forget(answer)
        elif self._answers.get(answer.key) is answer:
            self._answers[answer.key] = self._answers.pop(answer.key)

    def forget(self, answer: KeptAnswer) -> None:
        """Nobody goes on with it; idempotent."""
        answer.forgotten()
        if self._answers.get(answer.key) is answer:
            del self._answers[answer.key]
            self._bytes_of[answer.tenant] -= self._counted.pop(answer.key)
            self._num_of[answer.tenant] -= 1
            if not self._num_of[answer.tenant]:
                del self._num_of[answer.tenant], self._bytes_of[answer.tenant]

    def look(self) -> None:
        """Forgets those whose time is over."""
        for each in self:
            if self._is_late(each):
                self.forget(each)

    def _is_late(self, answer: KeptAnswer) -> bool:
        return not answer.is_running and self._clock() - answer.left_s >= self.limits.within_s

    def _count(self, answer: KeptAnswer) -> None:
        """Its bytes, as they are now."""
        num_bytes = answer.num_bytes
        self._bytes_of[answer.tenant] += num_bytes - self._counted.get(answer.key, 0)
        self._counted[answer.key] = num_bytes
        if num_bytes > self.limits.max_bytes // ANSWERS_PART:
            self.forget(answer)

    def _has_place(self, answer: KeptAnswer) -> bool:
        tenant, size, limits = answer.tenant, answer.num_bytes, self.limits
        return (
            len(self._answers) < limits.max_answers
            and self._num_of[tenant] < max(1, limits.max_answers // TENANTS_PART)
            and self._bytes_of.total() + size <= limits.max_bytes
            and self._bytes_of[tenant] + size <= limits.max_bytes // TENANTS_PART
            and size <= limits.max_bytes // ANSWERS_PART
        )

    def _oldest_left(self, tenant: str) -> KeptAnswer | None:
        """Of that tenant, else of anybody."""
        left = [each for each in self._answers.values() if not each.is_running]
        return next((each for each in left if each.tenant == tenant), next(iter(left), None))
