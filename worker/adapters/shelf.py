"""A worker's folder of adapters: watched, and ordered about by operators.

A folder below the root is an adapter of its name. What lies there at the first look is looked at
then, others when their files have stayed the same for one look, all again when these change; one
whose files two looks do not find is withdrawn. Operators load one under a name of their choice,
from any folder under the root, and unload one: that stays so until the bytes of the folder of that
name change, it is loaded again, or the worker starts anew. What could not be read, at first or when
the engine wanted it again, is tried again until one of these happens; what is wrong is not.

Looks and orders to load take turns, as each may wait for storage. Taking a name away waits for
nothing: what is being made of the name at that moment comes to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from cluster.adapter import MAX_ADAPTERS, UnreadAdapters, check_name
from cluster.deadline import Clock, Sleep
from cluster.errors import AdapterRefused, AdapterUnread, SplitserveError
from cluster.logs import get_logger
from cluster.models.adapters.files import adapter_folder, read_adapter
from cluster.models.card import DecoderConfig
from cluster.process.background import Background
from engine.contract.adapters import LoadAdapter, UnloadAdapter
from engine.contract.messages import Frame
from worker.adapters.folder_looks import FolderLooks
from worker.adapters.lost import LostAdapters
from worker.adapters.namings import OpenNamings
from worker.adapters.numbers import AdapterNumbers
from worker.adapters.offered import LookedAt, OfferedAdapters
from worker.adapters.root_readings import RootReadings
from worker.adapters.shelf_scan import Signature, scan, signature_of
from worker.adapters.storage import FolderStorage

LOOK_INTERVAL_S: Final = 1.0
RETIRE_S: Final = 5.0
"""From the moment that routers are told of a withdrawal until the engine is: they hear of it at
once, at the latest with the second beat after a lost one."""
READ_LIMIT_S: Final = 45.0
"""Of one adapter, or of the look at the folder: of storage that does not answer an operator hears
within his order's minute."""
_log = get_logger("worker.adapters")


class AdapterShelf:
    """Of one worker. From the event loop; files are read in threads, one adapter at a time."""

    def __init__(
        self,
        root: Path,
        config: DecoderConfig,
        send: Callable[[LoadAdapter | UnloadAdapter], None],
        *,
        on_change: Callable[[], None],
        background: Background,
        clock: Clock,
        sleep: Sleep,
        read_limit_s: float = READ_LIMIT_S,
    ) -> None:
        self._root, self._config = root, config
        self._storage, self._root_storage = FolderStorage(read_limit_s), FolderStorage(read_limit_s)
        """Of single adapters; and of the look at the folder, which none of them holds up."""
        self._background, self._clock, self._sleep = background, clock, sleep
        self._on_change = on_change
        self.offered = OfferedAdapters(root, send, on_change, self._retire)
        self._looks = FolderLooks(clock)
        self._digests: dict[str, str] = {}
        """By name, of the folder of that name when it was read last."""
        self._ordered: dict[str, str | None] = {}
        """By name, the paths that operators gave for those that they loaded; None: unloaded."""
        self._lost = LostAdapters()
        self._turn = asyncio.Lock()
        """Of looks and orders to load, one adapter at a time."""
        self._namings = OpenNamings()
        self.has_looked = asyncio.Event()
        """What lies there is offered, as far as it could be read."""
        self.to_read: list[str] = []
        self.num_read = 0
        """Names, and how many of them have been read, at this look."""
        self._root_readings = RootReadings(clock)

    @property
    def unread(self) -> UnreadAdapters:
        """Of the folder, or ordered, and not offered yet: being read, or to be read, for the first
        time or again after they could not be; none that is unloaded, unless it is known that its
        bytes are others by now. Any, until it is known what lies there."""
        unloaded = {name for name, path in self._ordered.items() if path is None}
        due = (name for name in self.to_read[self.num_read :] if self._looks.is_due(name))
        lying = [n for n in (*due, *self._lost, *sorted(self._looks.hidden)) if n not in unloaded]
        names = dict.fromkeys([*self._namings.names(unloaded=unloaded), *lying])
        unread = (name for name in names if self.offered.find(name) is None)
        return UnreadAdapters(
            names=frozenset(islice(unread, MAX_ADAPTERS)),
            may_be_any=self._root_readings.first_is_due,
        )

    def numbers(self) -> AdapterNumbers:
        """Of now; from any thread."""
        return replace(self.offered.numbers, folder_unread_s=self._root_readings.unread_s)

    async def follow(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            await self.look()
            self.has_looked.set()
            await self._sleep(LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Once. A root that cannot be read at this moment changes nothing."""
        await self._take_lost()
        try:
            what, question = "the folder of adapters", partial(scan, self._root)
            found = await self._root_storage.ask(what, question)
        except AdapterUnread as error:
            self._root_readings.note(is_read=False, cause=str(error))
        else:
            self._root_readings.note(is_read=True)
            await self._take(found)

    async def load(self, name: str, path: str) -> str:
        """An operator's order: the digest that the name stands for from now on. Raises
        AdapterRefused, and AdapterUnread for what may be tried again."""
        check_name(name)
        with self._namings.open(name, is_ordered=True) as naming:
            async with self._turn:
                item = await self._look_at(path) if naming.holds else None
                if item is None or not await self.offered.offer(name, item, naming):
                    raise AdapterRefused(f"{name} was unloaded before it was loaded")
                if item.own_name == name:
                    self._digests[name] = item.digest
                self._looks.take(name, item.signature if item.own_name == name else None)
                self._ordered[name] = path
                self._lost.forget(name)
                return item.digest

    def unload(self, name: str) -> bool:
        """An operator's order, done at once; False where nothing has that name, or is about to."""
        was_unread = check_name(name) in self.unread.names
        self._give_up(name)
        self._looks.take(name)
        if self._looks.may_lie(name):
            self._ordered[name] = None
        is_coming = self._namings.revoke(name)
        is_withdrawn = self.offered.withdraw(name)
        if was_unread and not is_withdrawn:
            self._on_change()
        return is_withdrawn or is_coming

    def heard(self, frame: Frame) -> None:
        """What the engine says of adapters."""
        for news in frame.adapters:
            for name in self.offered.heard(news):
                self._lost.note(name, self._ordered.get(name) or name)

    async def _take(self, found: dict[str, Signature | None]) -> None:
        """What has changed since it was read, and has not since the look before. Orders come in
        between: they, too, are about files that this look has seen."""
        ordered = self._ordered.keys()
        due = self._looks.note(found, ordered=ordered, never_read=ordered - self._digests.keys())
        self.num_read, self.to_read = 0, due
        async with self._turn:
            self._withdraw_gone()
        took_s = dict[str, float]()
        for name in self.to_read:
            async with self._turn:
                if self._looks.is_due(name):
                    self._looks.take(name)
                    began_s = self._clock()
                    await self._take_one(name, name)
                    took_s[name] = self._clock() - began_s
            self.num_read += 1
        self._looks.note_read(took_s)

    def _withdraw_gone(self) -> None:
        for name in self._looks.forget_gone():
            is_own = self._is_own(name)
            if is_own:
                self.offered.withdraw(name)
            if is_own or self._ordered.get(name, name) in (name, None):
                self._give_up(name)
            self._digests.pop(name, None)

    async def _take_lost(self) -> None:
        """For the time of a look, while they are found; the next look has the rest."""
        until_s, due = self._clock() + LOOK_INTERVAL_S, self._lost.look()
        while due is not None:
            name, path = due
            async with self._turn:
                if name in self._lost:  # else it was unloaded, or ordered anew, meanwhile
                    await self._take_one(name, path)
            if name in self._lost or self._clock() >= until_s:
                return
            due = self._lost.due()

    async def _take_one(self, name: str, path: str) -> None:
        """One that cannot be used is said in the log. What it was before goes on being offered: it
        is in the engine."""
        with self._namings.open(name) as naming:
            try:
                item = await self._look_at(path)
                if not naming.holds:
                    self._note_unloaded(name, path, item)
                elif path != name or self._is_news(name, item.digest):
                    if await self.offered.offer(name, item, naming):
                        self._lost.forget(name)
                else:
                    self._lost.forget(name, path)
            except AdapterUnread as error:
                if naming.holds:
                    self._lost.note(name, path)
                self.offered.note_unread()
                cause = error.message
                _log.warning("an adapter was not read; it is tried again", name=name, cause=cause)
            except SplitserveError as error:
                self._lost.forget(name, path)
                self.offered.note_refused()
                _log.warning("an adapter is not loaded", name=name, cause=error.message)
            except Exception:
                _log.exception("an adapter cannot be looked at; the others can", name=name)

    def _note_unloaded(self, name: str, path: str, item: LookedAt) -> None:
        """While it was looked at: so it stays until its folder has other bytes than these."""
        if path == name:
            self._digests[name] = item.digest

    async def _look_at(self, path: str) -> LookedAt:
        """Raises AdapterRefused and AdapterUnread."""
        question = partial(_looked_at, self._root, path, self._config)
        return await self._storage.ask(path[:200], question)

    def _is_news(self, name: str, digest: str) -> bool:
        """Of the folder of that name: other bytes than it had, which end an order about the name,
        or ones that are not offered, though no order stands."""
        before, self._digests[name] = self._digests.get(name), digest
        if digest != before:
            self._give_up(name)
        item = self.offered.find(name)
        return name not in self._ordered and (item is None or item.digest != digest)

    def _give_up(self, name: str) -> None:
        """Its order, and what was lost of it."""
        self._ordered.pop(name, None)
        self._lost.forget(name)

    def _is_own(self, name: str) -> bool:
        """Whether what has that name came from the folder of that name."""
        item = self.offered.find(name)
        return item is not None and item.own_name == name

    def _retire(self, digest: str) -> None:
        self._background.once(f"retire adapter {digest}", self._drop_later(digest))

    async def _drop_later(self, digest: str) -> None:
        await self._sleep(RETIRE_S)
        self.offered.drop(digest)


def _looked_at(root: Path, path: str, config: DecoderConfig) -> LookedAt:
    """All that waits for storage, in one call. Raises AdapterRefused and OSError."""
    folder = adapter_folder(root, path)
    signature = signature_of(folder)
    files = read_adapter(root, folder, config)
    return LookedAt(
        digest=files.digest,
        folder=folder,
        lora_rank=files.lora_rank,
        own_name=folder.name if folder.parent == root.resolve() else "",
        signature=signature,
    )
