"""Compiles that one answer has alone: how much memory they take together, by estimate.

take -> OwnShare, of one answer, which grows -> nobody has it any more: its bytes are free
                                            |-> all are too much: the largest is to end
                                            '-> of an heir that another follows as well: it is not
                                                one answer's, and counts no more until it is again
"""

from __future__ import annotations

import threading
from weakref import WeakSet

from engine.sampling.grammars.kept_grammars import grown_bytes, likely_bytes

MAX_OWN_BYTES = 256 << 20
"""Of an engine. They are for answers whose strings are longer than two compiles together have
states for."""
BYTES_PER_REPLAYED_TOKEN = 2 << 10
"""That an answer is fed with once more, without a mask: 2.4 MB for 1,635 tokens of long strings."""


class OwnShare:
    """One answer's, of one compile, for as long as it follows that."""

    __slots__ = ("__weakref__", "_base_bytes", "_followers", "num_tokens")

    def __init__(self, base_bytes: int, followers: WeakSet[OwnShare] | None = None) -> None:
        """`followers`: of all who follow the compile now, where others may."""
        self._base_bytes, self._followers = base_bytes, followers
        self.num_tokens = 0
        """Whose masks were made with it."""

    @property
    def is_shared(self) -> bool:
        """Others follow the compile as well."""
        return self._followers is not None and len(self._followers) > 1

    @property
    def num_bytes(self) -> int:
        """By estimate, of what is one answer's."""
        return 0 if self.is_shared else self._base_bytes + grown_bytes(self.num_tokens)


class OwnCompiles:
    """One engine's; any thread."""

    def __init__(self, most_bytes: int = MAX_OWN_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._taken: WeakSet[OwnShare] = WeakSet()

    @property
    def num_bytes(self) -> int:
        """Of all that are had now."""
        with self._lock:
            return sum(share.num_bytes for share in self._taken)

    def take(
        self, text_bytes: int, num_replayed: int, followers: WeakSet[OwnShare] | None = None
    ) -> OwnShare:
        """Of a grammar with so long a text, fed with so many tokens. `followers`: see OwnShare;
        this one is among them then."""
        base_bytes = likely_bytes(text_bytes) + BYTES_PER_REPLAYED_TOKEN * num_replayed
        share = OwnShare(base_bytes, followers)
        with self._lock:
            self._taken.add(share)
            if followers is not None:
                followers.add(share)
        return share

    def is_too_large(self, share: OwnShare) -> bool:
        """All are more than there may be, and no other is larger."""
        if share.is_shared:
            return False  # it would free nothing: others have the compile still
        with self._lock:
            each = [other.num_bytes for other in self._taken if not other.is_shared]
        return len(each) > 1 and sum(each) > self._most_bytes and share.num_bytes >= max(each)
