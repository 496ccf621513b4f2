"""Kept answers that may make way, the oldest first: found at once, however many there are.

its connection is over -> here -> another goes on with it -> passed over, until it is over again
"""

from __future__ import annotations

from collections import OrderedDict

from router.resume.kept_answer import KeptAnswer

_Queue = OrderedDict[bytes, KeptAnswer]


class LeftAnswers:
    """Of one router. As many as are kept at most: whoever forgets one removes it here."""

    def __init__(self) -> None:
        self._all: _Queue = OrderedDict()
        self._of: dict[str, _Queue] = {}
        """By tenant."""

    def add(self, answer: KeptAnswer) -> None:
        """As the newest."""
        self.remove(answer)
        self._all[answer.key] = answer
        self._of.setdefault(answer.tenant, OrderedDict())[answer.key] = answer

    def remove(self, answer: KeptAnswer) -> None:
        """Idempotent; another one of the same name stays."""
        if self._all.get(answer.key) is not answer:
            return
        del self._all[answer.key]
        own = self._of[answer.tenant]
        del own[answer.key]
        if not own:
            del self._of[answer.tenant]

    def oldest(self) -> KeptAnswer | None:
        """Of all tenants."""
        return self._first_of(self._all)

    def oldest_of(self, tenant: str) -> KeptAnswer | None:
        """Of that tenant's own."""
        own = self._of.get(tenant)
        return None if own is None else self._first_of(own)

    def _first_of(self, queue: _Queue) -> KeptAnswer | None:
        """One that runs again is not left any more."""
        while queue:
            answer = next(iter(queue.values()))
            if not answer.is_running:
                return answer
            self.remove(answer)
        return None
