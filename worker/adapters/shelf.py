"""A worker's folder of adapters: watched, and ordered about by operators.

A folder below the root is an adapter of its name. It is looked at when its files have stayed the
same for one look, again when they change, and withdrawn when they are gone. Operators load one
under a name of their choice, from any folder under the root, and unload one: that stays so until
its files change, it is loaded again, or the worker starts anew. What was offered and is lost, as
its files could not be read again, is tried again until one of these happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from cluster.adapter import check_name
from cluster.deadline import Clock, Sleep
from cluster.errors import AdapterRefused, ConfigError, SplitserveError
from cluster.logs import get_logger
from cluster.models.adapters.files import adapter_folder, read_adapter
from cluster.models.adapters.shelf_scan import Signature, scan, signature_of
from cluster.models.card import DecoderConfig
from cluster.process.background import Background
from cluster.process.thread_call import in_thread
from engine.contract.adapters import LoadAdapter, UnloadAdapter
from engine.contract.messages import Frame
from worker.adapters.lost import LostAdapters
from worker.adapters.numbers import AdapterNumbers
from worker.adapters.offered import LookedAt, OfferedAdapters

LOOK_INTERVAL_S: Final = 1.0
RETIRE_S: Final = 5.0
"""From the moment that routers are told of a withdrawal until the engine is: they hear of it at
once, at the latest with the second beat after a lost one."""
READ_LIMIT_S: Final = 45.0
"""Of one adapter: of storage that does not answer an operator hears within his order's minute."""
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
        self._root, self._config, self._read_limit_s = root, config, read_limit_s
        self._background, self._clock, self._sleep = background, clock, sleep
        self.offered = OfferedAdapters(root, send, on_change, self._retire)
        self._seen: dict[str, Signature] = {}
        """At the look before: by name."""
        self._taken: dict[str, Signature] = {}
        """As of the last time that they were read, well or not."""
        self._ordered: dict[str, str] = {}
        """By name, the paths that operators gave for those that they loaded."""
        self._lost = LostAdapters()
        self._turn = asyncio.Lock()

    def numbers(self) -> AdapterNumbers:
        """Of now; from any thread."""
        return self.offered.numbers

    async def take_all(self) -> None:
        """What lies there at the start. Raises ConfigError for a folder that cannot be read."""
        try:
            self._seen = await in_thread("adapters", partial(scan, self._root))
        except OSError as error:
            raise ConfigError(
                f"the folder of adapters {self._root} cannot be read: {error.strerror}",
                param="adapters",
            ) from error
        await self._take(self._seen)

    async def follow(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            await self.look()
            await self._sleep(LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Once. A root that cannot be read at this moment changes nothing."""
        try:
            found = await in_thread("adapters", partial(scan, self._root))
        except OSError as error:
            _log.warning("the folder of adapters cannot be read", cause=str(error))
        else:
            await self._take(found)
        await self._take_lost()

    async def load(self, name: str, path: str) -> str:
        """An operator's order: the digest that the name stands for from now on. Raises
        AdapterRefused."""
        check_name(name)
        async with self._turn:
            folder = await in_thread("adapter", partial(adapter_folder, self._root, path))
            self._note_taken(name, folder)
            item = await self._look_at(folder)
            await self.offered.offer(name, item)
            self._ordered[name] = path
            self._lost.forget(name)
            return item.digest

    async def unload(self, name: str) -> bool:
        """An operator's order; False where nothing has that name."""
        async with self._turn:
            self._give_up(check_name(name))
            return self.offered.withdraw(name)

    def heard(self, frame: Frame) -> None:
        """What the engine says of adapters."""
        for news in frame.adapters:
            for name in self.offered.heard(news):
                self._lost.note(name, self._ordered.get(name, name))

    async def _take(self, found: dict[str, Signature]) -> None:
        """What has changed since it was read, and has not since the look before."""
        async with self._turn:
            for name in [name for name in self._taken if name not in found]:
                is_own = self._is_own(name)
                if is_own:
                    self.offered.withdraw(name)
                if is_own or self._ordered.get(name, name) == name:
                    self._give_up(name)
                del self._taken[name]
            for name, signature in found.items():
                is_new = self._taken.get(name) != signature
                if is_new and self._seen.get(name) == signature:
                    self._taken[name] = signature
                    self._give_up(name)
                    await self._take_one(name, name)
            self._seen = found

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
        """One that cannot be used is said in the log, once for each change of its files. What it
        was before goes on being offered: it is in the engine."""
        try:
            folder = await in_thread("adapter", partial(adapter_folder, self._root, path))
            await self.offered.offer(name, await self._look_at(folder))
            self._lost.forget(name)
        except SplitserveError as error:
            self.offered.refuse()
            _log.warning("an adapter is not loaded", name=name, cause=error.message)
        except Exception:
            _log.exception("an adapter cannot be looked at; the others can", name=name)

    async def _look_at(self, folder: Path) -> LookedAt:
        read = partial(read_adapter, self._root, folder, self._config)
        try:
            async with asyncio.timeout(self._read_limit_s):
                files = await in_thread("adapter", read)
        except MemoryError:
            raise AdapterRefused(f"{folder.name} does not fit in memory") from None
        except TimeoutError:
            raise AdapterRefused(
                f"{folder.name} could not be read within {self._read_limit_s:g} s"
            ) from None
        return LookedAt(digest=files.digest, folder=folder, lora_rank=files.lora_rank)

    def _give_up(self, name: str) -> None:
        """Its order, and what was lost of it."""
        self._ordered.pop(name, None)
        self._lost.forget(name)

    def _is_own(self, name: str) -> bool:
        """Whether what has that name came from the folder of that name."""
        item = self.offered.find(name)
        return item is not None and item.folder == self._root.resolve() / name

    def _note_taken(self, name: str, folder: Path) -> None:
        """The watch need not read it once more."""
        signature = signature_of(folder)
        if signature is not None and folder == self._root.resolve() / name:
            self._taken[name] = signature

    def _retire(self, digest: str) -> None:
        self._background.once(f"retire adapter {digest}", self._drop_later(digest))

    async def _drop_later(self, digest: str) -> None:
        await self._sleep(RETIRE_S)
        self.offered.drop(digest)
