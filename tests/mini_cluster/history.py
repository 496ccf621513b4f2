"""The last changes of all objects, in their order: what watchers are told.

One writer, any number of readers on the same event loop. A reader has no queue: it keeps the
number of the last change that it has seen and asks for those after it. Who is too slow for the
history's length is told so, and lists again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.mini_cluster.refusals import expired

Object = dict[str, Any]
Matches = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Event:
    """As watchers get it: ADDED, MODIFIED, DELETED, or BOOKMARK, of a version alone."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Change:
    """One write. The objects are shared by all readers, who must not change them."""

    version: int
    resource: str
    before: Object | None
    """None: it was created."""
    after: Object
    """For a deletion: what was deleted, with the deletion's version."""
    is_deletion: bool = False

    def seen_by(self, matches: Matches) -> str | None:
        """The event's type for a reader of matching objects alone; None: it is not told."""
        was = self.before is not None and matches(self.before)
        is_now = not self.is_deletion and matches(self.after)
        if was and is_now:
            return "MODIFIED"
        return "DELETED" if was else "ADDED" if is_now else None


class History:
    """Bounded: the oldest change leaves when a new one comes."""

    def __init__(self, length: int) -> None:
        self._changes: deque[Change] = deque(maxlen=length)
        self._written = asyncio.Event()
        self.version = 0
        """Of the last change of all. Each change has the next number."""

    def append(self, change: Change) -> None:
        """`change.version` is `version + 1`. Wakes all who wait."""
        self._changes.append(change)
        self.version = change.version
        self._written.set()
        self._written = asyncio.Event()

    def since(self, version: int) -> list[Change]:
        """Those after it. Raises Refusal 410 if some of them have left."""
        oldest = self.version - len(self._changes)
        if version < oldest:
            raise expired(version, oldest)
        return [change for change in self._changes if change.version > version]

    async def wait_for_more(self, version: int) -> None:
        """Until there is a change after this one. Whoever calls bounds the wait."""
        while self.version <= version:
            await self._written.wait()
