"""Who watches the page: one snapshot a second, made once for all of them.

nobody -> one comes: snapshots begin, one a second, the newest for each -> all leave: they end

Whoever has not signed in watches while there is room: when all places are taken, the one of them
that has watched longest makes room for an operator.

A watcher that is slow misses snapshots, for it has room for the newest alone; one that takes none
at all for a while is cut by its connection (router/api/http/exchange.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from cluster.deadline import Sleep
from cluster.errors import NotReady
from cluster.process.background import Background
from router.page.sight import Sight
from router.page.snapshot import Snapshot
from router.page.survey import Survey

MAX_WATCHERS = 16
INTERVAL_S = 1.0


class PageWatcher:
    """One connection's. Made by `Watchers.watching`."""

    def __init__(self, sight: Sight) -> None:
        self.sight = sight
        self._newest: bytes | None = None
        self._has_news = asyncio.Event()
        self._is_over = False

    def give(self, frame: bytes) -> None:
        """In the place of one that was not taken."""
        self._newest = frame
        self._has_news.set()

    def end(self) -> None:
        """There will be no more."""
        self._is_over = True
        self._has_news.set()

    async def next(self) -> bytes | None:
        """The newest that was not taken yet; None: there will be no more."""
        await self._has_news.wait()
        self._has_news.clear()
        frame, self._newest = self._newest, None
        return None if self._is_over else frame


class Watchers:
    """Of one page. From the event loop; `close` once."""

    def __init__(self, survey: Survey, background: Background, sleep: Sleep) -> None:
        self._survey = survey
        self._background = background
        self._sleep = sleep
        self._watchers: dict[PageWatcher, None] = {}
        self._is_showing = False
        self._is_closed = False

    @property
    def num_watchers(self) -> int:
        """At the moment."""
        return len(self._watchers)

    @contextmanager
    def watching(self, sight: Sight) -> Iterator[PageWatcher]:
        """A place, until the block ends. Raises NotReady where there is none."""
        if sight is Sight.NAMES and len(self._watchers) >= MAX_WATCHERS:
            self._make_room()
        if len(self._watchers) >= MAX_WATCHERS or self._is_closed:
            raise NotReady(f"{len(self._watchers)} others watch; at most {MAX_WATCHERS} can")
        watcher = PageWatcher(sight)
        self._watchers[watcher] = None
        if not self._is_showing:
            self._is_showing = True
            self._background.once("page", self._show())
        try:
            yield watcher
        finally:
            self._watchers.pop(watcher, None)

    def close(self) -> None:
        """Ends all that watch; idempotent."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.end()

    def _make_room(self) -> None:
        longest = (each for each in self._watchers if each.sight is not Sight.NAMES)
        if (stranger := next(longest, None)) is not None:
            del self._watchers[stranger]
            stranger.end()

    async def _show(self) -> None:
        """Until nobody watches. Where a snapshot fails all who watch are cut: they come again."""
        try:
            while self._watchers:
                self._hand_out(await self._survey.take())
                await self._sleep(INTERVAL_S)
        finally:
            self._is_showing = False
            for watcher in self._watchers:
                watcher.end()

    def _hand_out(self, snapshot: Snapshot) -> None:
        frames: dict[Sight, bytes] = {}
        for watcher in self._watchers:
            if (frame := frames.get(watcher.sight)) is None:
                seen = snapshot if watcher.sight is Sight.NAMES else snapshot.without_names()
                frame = frames[watcher.sight] = msgspec.json.encode(seen)
            watcher.give(frame)
