"""What one decode worker can hold, as it said, less what this router has promised of it.

    held     by requests of this router, from before their prompts are computed until they end
    others'  what the worker said it has beside those: another router's, or ours that it still ends

Blocks of a prompt that is computed are in the worker's own count; what is held of it then is its
answer. Where the worker's ranks share its blocks, a request has to fit at one of them as well. A
worker that has nothing of ours always takes one: what it says of others may be old.
"""

from __future__ import annotations

import msgspec

from cluster.generation import EngineLoad


class Need(msgspec.Struct, frozen=True, gc=False):
    """Of one request."""

    num_seqs: int = 1
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """Over all choices, as long as they will probably get."""


NOTHING = Need(num_seqs=0)
"""Of a request for which nothing is reserved."""


class WorkerRoom:
    """Of one process. From the event loop only."""

    __slots__ = (
        "_block_tokens",
        "_free_tokens",
        "_max_seqs",
        "_others",
        "_roomiest_tokens",
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
        self._others = 0
        self.held_seqs = 0
        self.held_tokens = 0

    def heard(self, load: EngineLoad) -> None:
        """Its word."""
        self._others = max(0, load.num_running + load.num_waiting - self.held_seqs)
        if load.total_blocks:
            self._free_tokens = (load.free_blocks + load.cached_blocks) * self._block_tokens
            self._roomiest_tokens = load.room_blocks * self._block_tokens

    def has(self, need: Need) -> bool:
        """True where one more with that need is not too many."""
        if not self.held_seqs:
            return True
        if self._max_seqs and self.held_seqs + self._others + need.num_seqs > self._max_seqs:
            return False
        if self._free_tokens is None:
            return True
        tokens = need.prompt_tokens + need.answer_tokens
        fits_beside_others = self.held_tokens + tokens <= self._free_tokens
        return fits_beside_others and tokens <= self._roomiest_tokens


class HeldRoom:
    """A request's part of a worker's room; it moves with the request, and is released once."""

    __slots__ = ("_is_computed", "_need", "_room")

    def __init__(self, need: Need, room: WorkerRoom | None) -> None:
        """Without a room it holds nothing until it moves to one."""
        self._need = need
        self._room = room
        self._is_computed = False
        self._count(1)

    @property
    def takes_turns(self) -> bool:
        """False where nothing is reserved: its prompt goes out at once."""
        return self._need.num_seqs > 0

    def fits(self, room: WorkerRoom) -> bool:
        """True where it has its part of that one, or could."""
        return self._room is room or room.has(self._need)

    def makes_room_for(self, need: Need) -> bool:
        """True where that fits at its worker once this is released."""
        if self._room is None:
            return False
        self._count(-1)
        fits = self._room.has(need)
        self._count(1)
        return fits

    def move(self, room: WorkerRoom | None) -> None:
        """To the worker that gets the request, whether that has room or not."""
        if room is self._room and not self._is_computed:
            return
        self._count(-1)
        self._room, self._is_computed = room, False
        self._count(1)

    def computed(self) -> None:
        """Its prompt is in the worker's own count from now on."""
        if not self._is_computed and self._room is not None:
            self._is_computed = True
            self._room.held_tokens -= self._need.prompt_tokens

    def release(self) -> None:
        """Idempotent."""
        self.move(None)

    def _count(self, sign: int) -> None:
        if self._room is not None:
            need = self._need
            prompt_tokens = 0 if self._is_computed else need.prompt_tokens
            self._room.held_seqs += sign * need.num_seqs
            self._room.held_tokens += sign * (prompt_tokens + need.answer_tokens)
