"""One answer that another connection may go on with, as this router keeps it.

begun: kept -> runs ... -> left: its connection is over, well or not
                '-> taken: another connection goes on; here it ends at its next token
"""

from __future__ import annotations

import math
from typing import Protocol

from cluster.errors import ResumedElsewhere, SplitserveError
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens, Completed
from router.resume.place import ReadersPlace
from router.resume.record import AllTold, Begun, DrawnBy, Entry, Told, encoded

ENTRY_BYTES = 300
"""Of a token that is not written yet, and what is around it here."""


class AnswersPlace(Protocol):
    """Where answers are kept."""

    def keep(self, answer: KeptAnswer) -> bool:
        """It has begun; False: there is no place for it."""

    def left(self, answer: KeptAnswer, error: SplitserveError | None) -> None:
        """Its connection is over, by that error where there is one."""


class KeptAnswer:
    """An AnswerKeeper. `key` names it, `tenant` is whose it is."""

    def __init__(self, key: bytes, tenant: str, head: bytes, place: AnswersPlace) -> None:
        """`head`: the request as it was understood."""
        self.key = key
        self.tenant = tenant
        self.head = head
        self.epoch = 0
        """Raised whenever it is taken: who has the highest goes on."""
        self.num_resumes = 0
        """How often another connection has gone on with it, as far as is known here."""
        self.is_kept = False
        self.is_running = False
        self.left_s = 0.0
        """When its connection was over."""
        self.written_s = -math.inf
        """When its last batch was made, or the store was told that it runs."""
        self.num_shared = 0
        """Of its batches, that other routers can have."""
        self.may_be_shared = False
        """Other routers may have something of it, and it is this router's to take away."""
        self.batches: list[bytes] = []
        """Of its record; what is not in them yet is in none before `write`."""
        self._place = place
        self._reader: ReadersPlace | None = None
        self._has_begun = False
        self._draws = 0
        self._news: list[Entry] = []
        self._num_bytes = len(head)
        self._is_taken = False

    @property
    def num_bytes(self) -> int:
        """That it takes, about."""
        return self._num_bytes + ENTRY_BYTES * len(self._news)

    @property
    def has_news(self) -> bool:
        """Something is not in its batches yet."""
        return bool(self._news)

    def begun(self, first_part: FirstPart, max_tokens: int) -> None:
        """See AnswerKeeper."""
        part = first_part
        if self._has_begun:
            self._note_draws(part.draws)
            return
        self._has_begun = True
        begun = Begun(part.pairing_key, part.cached_tokens, max_tokens, part.adapter_digest)
        self._news.append(begun)
        self.is_running = True
        self.is_kept = self._place.keep(self)
        self._note_draws(part.draws)

    @property
    def is_behind(self) -> bool:
        """See AnswerKeeper."""
        return self._reader is not None and self._reader.is_behind

    def streams(self) -> None:
        """See AnswerKeeper."""
        self._check_not_taken()
        self.is_running = True

    def relayed(self, event: ChoiceTokens) -> None:
        """See AnswerKeeper."""
        self._check_not_taken()
        if self.is_kept:
            self._news.append(Told.of(event))

    def completed(self, end: Completed) -> None:
        """See AnswerKeeper."""
        if self.is_kept:
            self._news.append(AllTold(end.usage, end.timing))

    def left(self, error: SplitserveError | None) -> None:
        """See AnswerKeeper."""
        self.is_running = False
        self._place.left(self, error)

    def taken(self) -> None:
        """Another connection goes on with it; idempotent."""
        self._is_taken = True

    def next_keeper(self, epoch: int) -> KeptAnswer:
        """Of the connection that goes on with it, with all that is written of it."""
        after = KeptAnswer(self.key, self.tenant, self.head, self._place)
        after.goes_on_from(self.batches)
        after.epoch, after.num_resumes = epoch, self.num_resumes + 1
        after.num_shared, after.may_be_shared = self.num_shared, self.may_be_shared
        return after

    def goes_on_from(self, batches: list[bytes]) -> None:
        """It is for another connection, after these; before anything of it is told there."""
        self.batches = list(batches)
        self._num_bytes = len(self.head) + sum(map(len, batches))

    def is_read_by(self, reader: ReadersPlace, first_part: FirstPart | None) -> None:
        """By the connection that goes on with it, with what is written of it."""
        self._reader = reader
        self._has_begun = first_part is not None
        self._draws = 0 if first_part is None else first_part.draws

    def write(self) -> None:
        """What is new becomes a batch."""
        if self._news:
            batch = encoded(self._news)
            self._news.clear()
            self.batches.append(batch)
            self._num_bytes += len(batch)

    def forgotten(self) -> None:
        """Nobody can go on with it any more; idempotent."""
        self.is_kept = False
        self._news.clear()

    def _note_draws(self, draws: int) -> None:
        if self.is_kept and draws != self._draws:
            self._draws = draws
            self._news.append(DrawnBy(draws))

    def _check_not_taken(self) -> None:
        if self._is_taken:
            raise ResumedElsewhere("another connection has asked for the rest of this answer")
