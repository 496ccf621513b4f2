"""Which adapters are in the bank, who uses them, and who waits for one.

    known --a request asks, or there is room--> staged --all ranks have read--> resident
      ^                                            |                               |
      '------ failed: who asked is told -----------'      least lately used, and   |
      '-------------------------------------------------- of no request: evicted --'

A request holds its adapter from the moment that it gets it to its end, so that none goes under a
running answer. One that waits for files is passed by others; one that lacks room by those whose
adapter is there, and for PASSED_S alone: they keep the room taken. One adapter is staged at a time.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass

import msgspec

from cluster.deadline import Clock
from cluster.errors import AdapterGone
from engine.contract.adapters import AdapterNews, LoadAdapter, UnloadAdapter
from engine.model.adapters.rank_adapters import Staged
from engine.model.adapters.words import ClearAdapter, SettleAdapter, StageAdapter
from engine.runner.adapters import ReplicaAdapters
from engine.step.lora_runs import LoraRuns
from engine.step.requests.adapter_use import AdapterUse

SETTLE_INTERVAL_S = 0.005
"""Ranks are asked so often how far they are, each time in a call of all."""
PASSED_S = 2.0
"""A name that has no room must not stop all others for as long as the longest answer runs."""


@dataclass(slots=True)
class _Resident:
    """In the bank, or on its way there."""

    slot: int
    start: int
    num_bytes: int
    num_users: int = 0
    is_placed: bool = False


class Adapting:
    """Of one engine. From its one thread, between two steps."""

    def __init__(self, adapters: ReplicaAdapters, clock: Clock = time.monotonic) -> None:
        self._adapters, self._clock = adapters, clock
        self._runs = LoraRuns(adapters.room.num_lora_ranks)
        self._free_slots = list(range(adapters.room.num_slots - 1, 0, -1))
        self._known: dict[str, LoadAdapter] = {}
        self._resident: OrderedDict[str, _Resident] = OrderedDict()
        """The least lately used first."""
        self._waiting: deque[AdapterUse] = deque()
        self._unasked: deque[str] = deque()
        """Known and to be read where there is room, though nobody has asked yet."""
        self._leaving: set[str] = set()
        """No more are let in; gone with the last who has it."""
        self._staged: str | None = None
        self._settle_s = 0.0
        self._lacking: AdapterUse | None = None
        """The first that waits, as it lacked room at the last turn."""
        self._lacking_s = 0.0
        """Since when."""
        self._news: list[AdapterNews] = []

    @property
    def is_busy(self) -> bool:
        """Something is read, or to be read: ask again soon."""
        return self._staged is not None or bool(self._unasked)

    @property
    def num_waiting(self) -> int:
        """Requests without their adapter yet."""
        return len(self._waiting)

    def take_news(self) -> list[AdapterNews]:
        """What has become of adapters since the last call."""
        news, self._news = self._news, []
        return news

    def apply(self, command: LoadAdapter | UnloadAdapter) -> None:
        """See engine/contract/adapters.py."""
        if isinstance(command, LoadAdapter):
            self.load(command)
        else:
            self.unload(command)

    def load(self, command: LoadAdapter) -> None:
        """From now on requests may ask for it; it is read at once where that evicts nobody."""
        self._leaving.discard(command.digest)
        lora_rank, room = command.lora_rank, self._runs.num_lora_ranks
        if lora_rank > room:
            failure = f"its rank is {lora_rank}, and there is room for {room} (--adapter-ranks)"
            self._tell(command.digest, failure)
        elif command.digest in self._resident or command.digest in self._known:
            self._known[command.digest] = command
            self._tell(command.digest)
        else:
            self._known[command.digest] = command
            self._unasked.append(command.digest)

    def unload(self, command: UnloadAdapter) -> None:
        """Nobody asks for it any more; who has it goes on with it."""
        self._known.pop(command.digest, None)
        if command.digest in self._resident:
            self._leaving.add(command.digest)
            self._drop_left(command.digest)

    def enter(self, digest: str) -> AdapterUse:
        """For a new request. Raises AdapterGone where it is not known here."""
        if digest not in self._known:
            raise AdapterGone(f"this worker has not loaded the adapter {digest}")
        use = AdapterUse(digest, self.leave)
        self._waiting.append(use)
        self.turn()
        return use

    def leave(self, use: AdapterUse) -> None:
        """See AdapterUse."""
        if use.slot is None:
            if use in self._waiting:
                self._waiting.remove(use)
            return
        resident = self._resident[use.digest]
        resident.num_users -= 1
        use.slot = None
        self._drop_left(use.digest)

    def turn(self) -> None:
        """Settles what is staged, lets in who can be, and stages what the next one waits for.
        Raises RankLost."""
        self._settle()
        is_passed = False
        for use in list(self._waiting):
            if self._grant(use, may_stage=not is_passed):
                self._waiting.remove(use)
            elif self._staged is None and not is_passed:
                is_passed = self._may_be_passed(use)
                if not is_passed:
                    break
        if self._waiting:
            self._leave_unasked()
        elif self._staged is None:
            self._stage_unasked()

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        slots = sorted([*self._free_slots, *(item.slot for item in self._resident.values())])
        found = [] if slots == list(range(1, self._adapters.room.num_slots)) else ["slots are lost"]
        if any(item.num_users < 0 for item in self._resident.values()):
            found.append("an adapter was left more often than entered")
        return found

    def num_users(self, digest: str) -> int:
        """Requests that hold it."""
        resident = self._resident.get(digest)
        return 0 if resident is None else resident.num_users

    def _may_be_passed(self, use: AdapterUse) -> bool:
        """Of the first that lacks room."""
        now_s = self._clock()
        if use is not self._lacking:
            self._lacking, self._lacking_s = use, now_s
        return now_s - self._lacking_s < PASSED_S

    def _grant(self, use: AdapterUse, *, may_stage: bool) -> bool:
        """Whether it waits no longer: it has its adapter, or never will."""
        resident = self._resident.get(use.digest)
        if resident is not None and resident.is_placed:
            self._resident.move_to_end(use.digest)
            resident.num_users += 1
            use.slot = resident.slot
            return True
        if resident is None and self._staged is None and may_stage:
            command = self._known.get(use.digest)
            if command is None:
                use.error = AdapterGone(f"the adapter {use.digest} was unloaded")
                return True
            self._stage(command, may_evict=True)
        return False

    def _leave_unasked(self) -> None:
        """Who waits comes first, and there may always be somebody: these may be asked for at once,
        and are read then."""
        while self._unasked:
            digest = self._unasked.popleft()
            if digest in self._known and digest not in self._resident:
                self._tell(digest)

    def _stage_unasked(self) -> None:
        while self._unasked:
            command = self._known.get(self._unasked.popleft())
            if command is None or command.digest in self._resident:
                continue
            if self._stage(command, may_evict=False):
                return
            self._tell(command.digest)  # it is read when somebody asks

    def _stage(self, command: LoadAdapter, *, may_evict: bool) -> bool:
        """False: there is no room now."""
        start = self._runs.take(command.lora_rank) if self._free_slots else None
        while start is None and may_evict and self._evict_one():
            start = self._runs.take(command.lora_rank)
        if start is None:
            return False
        slot = self._free_slots.pop()
        num_bytes = command.lora_rank * self._adapters.lora_rank_bytes
        self._resident[command.digest] = _Resident(slot, start, num_bytes)
        self._staged, self._settle_s = command.digest, self._clock()
        word = StageAdapter(
            root=command.root,
            folder=command.folder,
            digest=command.digest,
            slot=slot,
            start=start,
        )
        self._adapters.follow(word)
        return True

    def _evict_one(self) -> bool:
        """The one that was used least lately, of those that nobody uses."""
        for digest, item in self._resident.items():
            if item.is_placed and not item.num_users:
                self._drop(digest)
                if digest in self._known:
                    self._tell(digest)
                return True
        return False

    def _settle(self) -> None:
        digest = self._staged
        if digest is None or self._clock() < self._settle_s:
            return
        self._settle_s = self._clock() + SETTLE_INTERVAL_S
        progress = self._adapters.follow(SettleAdapter())
        if progress is Staged.READING:
            return
        self._staged = None
        if progress is Staged.READ:
            self._resident[digest].is_placed = True
            self._tell(digest)
            self._drop_left(digest)
        else:
            self._fail(digest, self._adapters.failure)

    def _fail(self, digest: str, failure: str) -> None:
        """Who waits for it is told; it may be loaded anew."""
        self._drop(digest)
        self._known.pop(digest, None)
        self._leaving.discard(digest)
        for use in [use for use in self._waiting if use.digest == digest]:
            use.error = AdapterGone(failure)
            self._waiting.remove(use)
        self._tell(digest, failure)

    def _drop_left(self, digest: str) -> None:
        item = self._resident.get(digest)
        if item is not None and digest in self._leaving and item.is_placed and not item.num_users:
            self._drop(digest)
            self._leaving.discard(digest)

    def _drop(self, digest: str) -> None:
        item = self._resident.pop(digest)
        if item.is_placed:
            self._adapters.follow(ClearAdapter(item.slot))
        self._runs.give_back(item.start)
        self._free_slots.append(item.slot)

    def _tell(self, digest: str, failure: str = "") -> None:
        resident = self._resident.get(digest)
        news = AdapterNews(digest, is_resident=False, failure=failure)
        if resident is not None and resident.is_placed:
            news = msgspec.structs.replace(news, is_resident=True, num_bytes=resident.num_bytes)
        self._news.append(news)
