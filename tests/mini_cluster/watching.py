"""What a watcher of a cluster's objects is told, from a history's changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from copy import deepcopy

from tests.mini_cluster.history import Change, Event, History, Matches

_QUIET_VERSIONS = 50
"""A watcher is told the version at least so often, though nothing of its own has changed."""


async def changes_after(
    seen: int, history: History, resource: str, *, namespace: str, matches: Matches
) -> AsyncGenerator[Event, None]:
    """For ever, in order; bookmarks in between. Refusal 410 when the history no longer has what
    came next. Namespace "": of all of them."""
    told = seen
    while True:
        for change in history.since(seen):
            seen = change.version
            event = _event(change, resource, namespace, matches)
            if event is not None or seen - told >= _QUIET_VERSIONS:
                told = seen
                yield event or bookmark(seen)
        await history.wait_for_more(seen)


def bookmark(version: int) -> Event:
    """Of a version alone."""
    return Event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def _event(change: Change, resource: str, namespace: str, matches: Matches) -> Event | None:
    if change.resource != resource:
        return None
    if namespace not in ("", change.after["metadata"].get("namespace", "")):
        return None
    type_ = change.seen_by(matches)
    return None if type_ is None else Event(type_, deepcopy(change.after))
