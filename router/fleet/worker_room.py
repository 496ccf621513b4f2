"""What one decode worker can hold, as it said, less what this router has promised of it.

    held     by requests of this router, from before their prompts are computed until they end
    others'  what the worker said it has beside those: another router's, or ours that it still ends;
             and what other routers say they have promised, which the worker may not know of yet

Nothing counts twice. A prompt that is computed, or is being read, is in the worker's own count, and
so is each token of an answer that was made: held is what is still to come. What the worker has
cached of a prompt is taken off it. Where the worker's ranks share its blocks, a request has to fit
at one of them as well. A worker that has nothing of ours takes one, whatever it says of others, for
that may be old: where no other router says that all seats are promised, or where it needs several,
which no other router keeps for it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cluster.generation import EngineLoad
from router.fleet.request_share import NOTHING_ELSEWHERE, GivenElsewhere
from router.fleet.seat_part import ALL_SEATS, SeatPart


class Need(msgspec.Struct, frozen=True, gc=False):
    """Of one request."""

    num_seqs: int = 1
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """Over all choices, as long as they will probably get."""

    @property
    def num_tokens(self) -> int:
        """Of both."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def num_steps(self) -> float:
        """That decode its answer: its choices go on together."""
        return self.answer_tokens / max(1, self.num_seqs)

    def exceeds(self, other: Need) -> bool:
        """True where there is no room for it if there is none for the other one."""
        return self.num_seqs >= other.num_seqs and self.num_tokens >= other.num_tokens


NOTHING = Need(num_seqs=0)
"""Of a request for which nothing is reserved."""


class WorkerRoom:
    """Of one process. From the event loop only."""

    __slots__ = (
        "_block_tokens",
        "_elsewhere",
        "_free_tokens",
        "_holds",
        "_is_settled",
        "_max_seqs",
        "_others",
        "_part",
        "_receiving_tokens",
        "_roomiest_tokens",
        "held_prompt_tokens",
        "held_seqs",
        "held_tokens",
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
        """Of prompts that it is reading: not free, and perhaps held as well."""
        self._others = 0
        self._elsewhere = NOTHING_ELSEWHERE
        self._part = ALL_SEATS
        self._holds: set[HeldRoom] = set()
        self._is_settled = True
        """False where answers may have grown since they were counted."""
        self.held_seqs = 0
        self.held_tokens = 0
        """Of prompts and answers, that are still to come."""
        self.held_prompt_tokens = 0
        """Of these, of prompts."""

    @property
    def holds(self) -> frozenset[HeldRoom]:
        """The parts of it that requests of this router have."""
        return frozenset(self._holds)

    def heard(self, load: EngineLoad) -> None:
        """Its word."""
        self._others = max(0, load.num_running + load.num_waiting - self.held_seqs)
        self._is_settled = False
        if load.total_blocks:
            self._free_tokens = (load.free_blocks + load.cached_blocks) * self._block_tokens
            self._roomiest_tokens = load.room_blocks * self._block_tokens
            self._receiving_tokens = load.receiving_blocks * self._block_tokens

    def promised_elsewhere(self, given: GivenElsewhere, part: SeatPart) -> None:
        """By other routers, in place of what was known; `part`: that this one may have."""
        self._elsewhere, self._part = given, part

    def has(self, need: Need, cached_tokens: int = 0) -> bool:
        """True where one more with that need is not too many, so many tokens of its prompt being
        there."""
        return self.would_have(need, NOTHING, cached_tokens)

    def has_seats(self, need: Need) -> bool:
        """True where it is not too many sequences, whatever their length."""
        return self._has_seats_beside(self.held_seqs, need)

    def would_have(self, need: Need, ended: Need, cached_tokens: int = 0) -> bool:
        """As `has`, had as much of ours ended; at the roomiest rank, where that can be."""
        num_ours = max(0, self.held_seqs - ended.num_seqs)
        if not self._has_seats_beside(num_ours, need):
            return False
        tokens = need.num_tokens - cached_tokens - ended.num_tokens
        return not num_ours or self._has_tokens(tokens)

    def add(self, hold: HeldRoom) -> None:
        """By the part itself, once; `remove` takes it away."""
        self._holds.add(hold)
        self._count(hold, 1)

    def remove(self, hold: HeldRoom) -> None:
        """By the part itself."""
        self._holds.remove(hold)
        self._count(hold, -1)

    def recount(self, hold: HeldRoom) -> None:
        """What is still to come of it has changed."""
        self._count(hold, -1)
        hold.settle()
        self._count(hold, 1)

    def _count(self, hold: HeldRoom, sign: int) -> None:
        self.held_seqs += sign * hold.num_seqs
        self.held_tokens += sign * (hold.prompt_tokens + hold.answer_tokens)
        self.held_prompt_tokens += sign * hold.prompt_tokens

    def _has_seats_beside(self, num_ours: int, need: Need) -> bool:
        """As if so many sequences of this router were there."""
        promised = self._elsewhere.num_seqs
        if not self._max_seqs:
            return True
        if not num_ours:
            has_few = need.num_seqs > 1 or self._max_seqs < self._part.num_parts
            return has_few or promised < self._max_seqs
        num_seqs = num_ours + need.num_seqs
        has_free = num_seqs + max(self._others, promised) <= self._max_seqs
        return has_free and num_seqs <= self._part.seats(self._max_seqs)

    def _has_tokens(self, tokens: int) -> bool:
        if self._free_tokens is None:
            return True
        return tokens <= self._roomiest_tokens and tokens <= self._unpromised_tokens(tokens)

    def _unpromised_tokens(self, enough: int) -> int:
        """Made tokens are looked up only where it matters: once for each of its words."""
        assert self._free_tokens is not None
        coming_tokens = self._elsewhere.coming_tokens
        expected_tokens = self.held_prompt_tokens + coming_tokens
        free_tokens = self._free_tokens + min(self._receiving_tokens, expected_tokens)
        free_tokens -= coming_tokens
        if free_tokens - self.held_tokens < enough and not self._is_settled:
            self._is_settled = True
            for hold in self._holds:
                self.recount(hold)
        return free_tokens - self.held_tokens


class HeldRoom:
    """A request's part of a worker's room; it moves with the request, and is released once."""

    __slots__ = (
        "_cached_tokens",
        "_is_computed",
        "_made",
        "_need",
        "_room",
        "answer_tokens",
        "is_local",
        "prompt_tokens",
    )

    def __init__(self, need: Need, room: WorkerRoom | None, cached_tokens: int = 0) -> None:
        """Without a room it holds nothing until it moves to one."""
        self._need = need
        self._made: Callable[[], int] = _none
        self._is_computed = False
        self._room: WorkerRoom | None = None
        self._cached_tokens = 0
        self.prompt_tokens = 0
        """To be computed or read there, before the next token."""
        self.answer_tokens = 0
        """To be made, as last counted."""
        self.is_local = False
        """Its worker computes its prompt: no prefill worker had a turn for it."""
        self._enter(room, cached_tokens)

    @property
    def need(self) -> Need:
        """Whose part it is; NOTHING where nothing is reserved."""
        return self._need

    @property
    def num_seqs(self) -> int:
        """That it has seats for."""
        return self._need.num_seqs

    @property
    def rest(self) -> Need:
        """Of it, as last counted: to be computed and made."""
        return Need(self.num_seqs, self.prompt_tokens, self.answer_tokens)

    @property
    def whole(self) -> Need:
        """That the worker has back when it ends."""
        tokens = max(self._need.answer_tokens, self._made())
        return Need(self.num_seqs, self._need.prompt_tokens - self._cached_tokens, tokens)

    @property
    def takes_turns(self) -> bool:
        """False where nothing is reserved: its prompt goes out at once."""
        return self._need.num_seqs > 0

    def makes(self, made: Callable[[], int]) -> None:
        """`made`: tokens of its answer, over all choices; asked now and then."""
        self._made = made

    def fits(self, room: WorkerRoom) -> bool:
        """True where it has its part of that one, or could."""
        return self._room is room or room.has(self._need)

    def beside(self, room: WorkerRoom, cached_tokens: int) -> HeldRoom:
        """As much, of another worker, which has so many tokens of its prompt."""
        other = HeldRoom(self._need, room, cached_tokens)
        other.makes(self._made)
        return other

    def makes_room_for(self, need: Need) -> bool:
        """True where that fits at its worker once this is released."""
        if (room := self._room) is None:
            return False
        room.remove(self)
        fits = room.has(need)
        self.settle()  # as all others were, if that counted them
        room.add(self)
        return fits

    def move(self, room: WorkerRoom | None, cached_tokens: int = 0) -> None:
        """To the worker that gets the request, whether that has room or not; so many tokens of
        its prompt are there."""
        self.is_local = False
        if room is self._room and cached_tokens == self._cached_tokens and not self._is_computed:
            return
        if self._room is not None:
            self._room.remove(self)
        self._enter(room, cached_tokens)

    def computed(self) -> None:
        """Its prompt is in the worker's own count from now on."""
        if not self._is_computed and self._room is not None:
            self._is_computed = True
            self._room.recount(self)

    def release(self) -> None:
        """Idempotent."""
        self.move(None)
        self._made = _none

    def settle(self) -> None:
        """By its room: counts what is still to come."""
        need, num_made = self._need, self._made()
        ahead_tokens = max(0, need.prompt_tokens - self._cached_tokens) + num_made
        self.prompt_tokens = 0 if self._is_computed else ahead_tokens
        self.answer_tokens = max(0, need.answer_tokens - num_made)

    def _enter(self, room: WorkerRoom | None, cached_tokens: int) -> None:
        self._room = room if self.takes_turns else None
        self._is_computed, self._cached_tokens = False, cached_tokens
        if self._room is not None:
            self.settle()
            self._room.add(self)


def _none() -> int:
    return 0
