"""A program that the store runs as one step, so that several routers do not come between."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from router.store.link import StoreCommand, StoreWord


@dataclass(frozen=True, slots=True)
class StoreScript:
    """In Lua. A store has to know it before it is called: see SharedStore.teach."""

    text: str
    sha: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode()).hexdigest())

    def call(self, keys: Sequence[str], arguments: Sequence[StoreWord]) -> StoreCommand:
        """For SharedStore.ask; its reply is what the script returns."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)
