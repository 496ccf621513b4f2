"""A request's part of a decode worker's room.

promised: prompt and answer are to come -> computed: the prompt is in the worker's own count
moves with the request from worker to worker -> released, once
"""

from __future__ import annotations

from collections.abc import Callable

from router.fleet.need import Need
from router.fleet.worker_room import WorkerRoom


class RoomPart:
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

    def beside(self, room: WorkerRoom, cached_tokens: int) -> RoomPart:
        """As much, of another worker, which has so many tokens of its prompt."""
        other = RoomPart(self._need, room, cached_tokens)
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
