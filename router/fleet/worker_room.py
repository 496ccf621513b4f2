"""What one decode worker can hold, as it said, less what this router has promised of it.

    promised  to requests of this router, a part each, from before their prompts are computed until
              they end
    others'   what the worker said it has beside those: another router's, or ours that it still
              ends; and what other routers say they have promised, which it may not know of yet

Nothing counts twice. A prompt that is computed, or is being read, is in the worker's own count, and
so is each token of an answer that was made: promised is what is still to come. What the worker has
cached of a prompt is taken off it. Where the worker's ranks share its blocks, a request has to fit
at one of them as well. A worker that has nothing of ours takes one, whatever it says of others, for
that may be old: where no other router says that all seats are promised, or where it needs several,
which no other router keeps for it. Words of routers are some time apart: between two of them it
promises a part of what is free, else two would promise all of it.
"""

from __future__ import annotations

from typing import Protocol

from cluster.generation import EngineLoad
from router.fleet.need import NOTHING, Need
from router.fleet.request_share import NOTHING_ELSEWHERE, GivenElsewhere
from router.fleet.seat_part import ALL_SEATS, SeatPart


class CountedPart(Protocol):
    """What a room counts of a request's part of it: `router.fleet.room_part`."""

    prompt_tokens: int
    """To be computed or read there, before the next token."""
    answer_tokens: int
    """To be made, as last counted."""

    @property
    def num_seqs(self) -> int:
        """That it has seats for."""
        ...

    @property
    def rest(self) -> Need:
        """Of it, as last counted: to be computed and made."""
        ...

    @property
    def whole(self) -> Need:
        """That the worker has back when it ends."""
        ...

    def settle(self) -> None:
        """Counts what is still to come."""
        ...


class WorkerRoom:
    """Of one process. From the event loop only."""

    __slots__ = (
        "_block_tokens",
        "_elsewhere",
        "_free_tokens",
        "_is_settled",
        "_max_seqs",
        "_most_seqs",
        "_others",
        "_parts",
        "_receiving_tokens",
        "_roomiest_tokens",
        "_seat_part",
        "promised_prompt_tokens",
        "promised_seqs",
        "promised_tokens",
    )

    def __init__(self, max_seqs: int, block_tokens: int) -> None:
        """`max_seqs`: that it decodes at once; 0: it has not said."""
        self._max_seqs = max_seqs
        self._block_tokens = block_tokens
        self._free_tokens: int | None = None
        """That fit, evictable blocks included; None before its first word."""
        self._roomiest_tokens = 0
        """Of these, at the rank with the most; all of them where ranks share heads."""
        self._receiving_tokens = 0
        """Of prompts that it is reading: not free, and perhaps promised as well."""
        self._others = 0
        self._elsewhere = NOTHING_ELSEWHERE
        self._seat_part = ALL_SEATS
        self._most_seqs = max_seqs
        """Of ours, until others have said more."""
        self._parts: set[CountedPart] = set()
        self._is_settled = True
        """False where answers may have grown since they were counted."""
        self.promised_seqs = 0
        self.promised_tokens = 0
        """Of prompts and answers, that are still to come."""
        self.promised_prompt_tokens = 0
        """Of these, of prompts."""

    @property
    def parts(self) -> frozenset[CountedPart]:
        """The parts of it that requests of this router have."""
        return frozenset(self._parts)

    def heard(self, load: EngineLoad) -> None:
        """Its word."""
        self._others = max(0, load.num_running + load.num_waiting - self.promised_seqs)
        self._is_settled = False
        if load.total_blocks:
            self._free_tokens = (load.free_blocks + load.cached_blocks) * self._block_tokens
            self._roomiest_tokens = load.room_blocks * self._block_tokens
            self._receiving_tokens = load.receiving_blocks * self._block_tokens

    def promised_elsewhere(self, given: GivenElsewhere, seat_part: SeatPart) -> None:
        """By other routers, in place of what was known; `seat_part`: that this one may have."""
        self._elsewhere, self._seat_part = given, seat_part
        num_free = self._max_seqs - self.promised_seqs - max(self._others, given.num_seqs)
        self._most_seqs = self.promised_seqs + seat_part.before_next_word(max(0, num_free))

    def has(self, need: Need, cached_tokens: int = 0) -> bool:
        """True where one more with that need is not too many, so many tokens of its prompt being
        there."""
        return self.would_have(need, NOTHING, cached_tokens)

    def has_seats(self, need: Need) -> bool:
        """True where it is not too many sequences, whatever their length."""
        return self._has_seats_beside(self.promised_seqs, need)

    def would_have(self, need: Need, ended: Need, cached_tokens: int = 0) -> bool:
        """As `has`, had as much of ours ended; at the roomiest rank, where that can be."""
        num_ours = max(0, self.promised_seqs - ended.num_seqs)
        if not self._has_seats_beside(num_ours, need):
            return False
        tokens = need.num_tokens - cached_tokens - ended.num_tokens
        return not num_ours or self._has_tokens(tokens)

    def add(self, part: CountedPart) -> None:
        """By the part itself, once; `remove` takes it away."""
        self._parts.add(part)
        self._count(part, 1)

    def remove(self, part: CountedPart) -> None:
        """By the part itself."""
        self._parts.remove(part)
        self._count(part, -1)

    def recount(self, part: CountedPart) -> None:
        """What is still to come of it has changed."""
        self._count(part, -1)
        part.settle()
        self._count(part, 1)

    def _count(self, part: CountedPart, sign: int) -> None:
        self.promised_seqs += sign * part.num_seqs
        self.promised_tokens += sign * (part.prompt_tokens + part.answer_tokens)
        self.promised_prompt_tokens += sign * part.prompt_tokens

    def _has_seats_beside(self, num_ours: int, need: Need) -> bool:
        """As if so many sequences of this router were there."""
        num_elsewhere = self._elsewhere.num_seqs
        if not self._max_seqs:
            return True
        if not num_ours:
            has_few = need.num_seqs > 1 or self._max_seqs < self._seat_part.num_parts
            return has_few or num_elsewhere < self._max_seqs
        num_seqs = num_ours + need.num_seqs
        if need.num_seqs == 1 and num_seqs > self._most_seqs:
            return False
        has_free = num_seqs + max(self._others, num_elsewhere) <= self._max_seqs
        return has_free and num_seqs <= self._seat_part.seats(self._max_seqs)

    def _has_tokens(self, tokens: int) -> bool:
        if self._free_tokens is None:
            return True
        return tokens <= self._roomiest_tokens and tokens <= self._unpromised_tokens(tokens)

    def _unpromised_tokens(self, enough: int) -> int:
        """Made tokens are looked up only where it matters: once for each of its words."""
        assert self._free_tokens is not None
        coming_tokens = self._elsewhere.coming_tokens
        expected_tokens = self.promised_prompt_tokens + coming_tokens
        free_tokens = self._free_tokens + min(self._receiving_tokens, expected_tokens)
        free_tokens -= coming_tokens
        if free_tokens - self.promised_tokens < enough and not self._is_settled:
            self._is_settled = True
            for part in self._parts:
                self.recount(part)
        return free_tokens - self.promised_tokens
