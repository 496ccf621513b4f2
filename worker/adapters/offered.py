"""Which adapters a worker has, by name and by digest.

    looked at -> the engine is told -> it has it: OFFERED, in the next beats
                                       '-- it cannot: never offered
    OFFERED -> withdrawn: no beat has it -> RETIRE_S later the engine is told

Between the last two nobody is refused: routers that have not heard yet still send requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.adapter import MAX_ADAPTERS, Adapter, OfferedAdapter
from cluster.errors import AdapterRefused, AdapterUnread
from cluster.logs import get_logger
from engine.contract.adapters import AdapterNews, LoadAdapter, UnloadAdapter
from worker.adapters.namings import Naming
from worker.adapters.numbers import AdapterNumbers
from worker.adapters.shelf_scan import Signature

_log = get_logger("worker.adapters")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """An adapter's files, read and found good."""

    digest: str
    folder: Path
    lora_rank: int
    own_name: str = ""
    """Of the folder, where it lies right below the root; empty: it lies deeper."""
    signature: Signature | None = None
    """Of its files, before they were read."""


class OfferedAdapters:
    """All calls from the event loop."""

    def __init__(
        self,
        root: Path,
        send: Callable[[LoadAdapter | UnloadAdapter], None],
        on_change: Callable[[], None],
        retire: Callable[[str], None],
    ) -> None:
        """`send`: to the engine. `on_change`: routers should hear of it at once. `retire`: is
        called with a digest that no name has any more, to call `drop` for it a while later."""
        self._root, self._send = root, send
        self._on_change, self._retire = on_change, retire
        self._by_name: dict[str, LookedAt] = {}
        self._known: dict[str, AdapterNews] = {}
        """By digest, what the engine knows: its last word."""
        self._asked: dict[str, asyncio.Future[AdapterNews]] = {}
        self.numbers = AdapterNumbers()
        self._being_offered: Counter[str] = Counter()
        self._num_retired: Counter[str] = Counter()
        """By digest: how often, not counting those that `drop` was called for."""

    @property
    def told(self) -> tuple[OfferedAdapter, ...]:
        """For the beats."""
        return tuple(
            OfferedAdapter(Adapter(name, item.digest), self._is_resident(item.digest))
            for name, item in self._by_name.items()
        )

    def find(self, name: str) -> LookedAt | None:
        """What is offered under a name."""
        return self._by_name.get(name)

    async def offer(self, name: str, item: LookedAt, naming: Naming) -> bool:
        """Once the engine has it, in place of what had the name; False where the naming was revoked
        by then. Raises AdapterRefused where it cannot have it, AdapterUnread where it may another
        time. Then, too, nothing has changed."""
        if name not in self._by_name and len(self._by_name) >= MAX_ADAPTERS:
            raise AdapterRefused(f"{MAX_ADAPTERS} adapters are offered, which is the limit")
        self._being_offered[item.digest] += 1
        try:
            news = await self._at_engine(item)
            if news.failure:
                raise (AdapterUnread if news.may_pass else AdapterRefused)(news.failure)
            if not naming.holds:
                return False
            before = self._by_name.get(name)
            self._by_name[name] = item
        finally:
            self._being_offered -= Counter([item.digest])
            self._retire_if_unused(item.digest)
        _log.info("an adapter is offered", name=name, digest=item.digest, lora_rank=item.lora_rank)
        self._count()
        self._on_change()
        if before is not None and before.digest != item.digest:
            self._retire_if_unused(before.digest)
        return True

    def withdraw(self, name: str) -> bool:
        """Routers are told; False where nothing has that name."""
        item = self._by_name.pop(name, None)
        if item is None:
            return False
        _log.info("an adapter is withdrawn", name=name, digest=item.digest)
        self._count()
        self._on_change()
        self._retire_if_unused(item.digest)
        return True

    def drop(self, digest: str) -> None:
        """It was retired a while ago: the engine lets go of it, unless it is offered again, or is
        about to be, or was retired once more since."""
        self._num_retired -= Counter([digest])
        if self._is_idle(digest) and not self._num_retired[digest]:
            del self._known[digest]
            self._count(withdrawn=1)
            self._send(UnloadAdapter(digest))

    def heard(self, news: AdapterNews) -> list[str]:
        """The engine's word; the names that are lost by it."""
        if (asked := self._asked.pop(news.digest, None)) is not None and not asked.done():
            asked.set_result(news)
        if news.failure:
            return self._lose(news)
        before, self._known[news.digest] = self._known.get(news.digest), news
        was_resident = before is not None and before.is_resident
        self._count(
            read=news.is_resident and not was_resident,
            evicted=was_resident and not news.is_resident,
        )
        has_changed = before is None or was_resident is not news.is_resident
        if has_changed and self._is_used(news.digest):
            self._on_change()
        return []

    def _lose(self, news: AdapterNews) -> list[str]:
        """What was offered cannot be read any more."""
        self._known.pop(news.digest, None)
        lost = [name for name, item in self._by_name.items() if item.digest == news.digest]
        for name in lost:
            _log.warning("an adapter is lost", name=name, digest=news.digest, cause=news.failure)
            del self._by_name[name]
            self._on_change()
        self._count(lost=bool(lost))
        return lost

    def note_refused(self) -> None:
        """Files were looked at, and could not be used."""
        self._count(refused=1)

    def note_unread(self) -> None:
        """Files could not be looked at, this time."""
        self._count(unread=1)

    def _count(self, **events: int) -> None:
        """What there is now, and what has happened."""
        resident = [news for news in self._known.values() if news.is_resident]
        grown = {name: getattr(self.numbers, name) + count for name, count in events.items()}
        self.numbers = replace(
            self.numbers,
            offered=len(self._by_name),
            resident=len(resident),
            resident_bytes=sum(news.num_bytes for news in resident),
            **grown,
        )

    def _is_resident(self, digest: str) -> bool:
        news = self._known.get(digest)
        return news is not None and news.is_resident

    async def _at_engine(self, item: LookedAt) -> AdapterNews:
        asked = self._asked.get(item.digest)
        if asked is None:
            asked = asyncio.get_running_loop().create_future()
            self._asked[item.digest] = asked
            # who asked may have left before the engine answers
            asked.add_done_callback(lambda _: self._retire_if_unused(item.digest))
            self._send(
                LoadAdapter(
                    digest=item.digest,
                    root=str(self._root),
                    folder=str(item.folder),
                    lora_rank=item.lora_rank,
                )
            )
        return await asyncio.shield(asked)

    def _retire_if_unused(self, digest: str) -> None:
        if self._is_idle(digest):
            self._num_retired[digest] += 1
            self._retire(digest)

    def _is_idle(self, digest: str) -> bool:
        """The engine has it for nobody: no name, and nobody who is about to give it one."""
        is_coming = self._being_offered[digest] > 0 or digest in self._asked
        return digest in self._known and not (is_coming or self._is_used(digest))

    def _is_used(self, digest: str) -> bool:
        return any(item.digest == digest for item in self._by_name.values())
