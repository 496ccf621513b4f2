"""Which adapters are in the bank, who uses them, and who waits for one.

    known --a request asks, or there is room--> staged --all ranks have read--> resident
      ^                                            |                               |
      '------ failed: who asked is told -----------'      least lately used, and   |
      '-------------------------------------------------- of no request: evicted --'

A request holds its adapter from the moment that it gets it to its end, so that none goes under a
running answer. One that waits for files is passed by others. Those that lack room take turns, by
owner, then by adapter: the first is passed for PASSED_S by all whose adapter is there; then those
that are to give way for it are closed: who has one goes on with it, nobody else gets it, and when
the last has left it is the first one's. All other adapters go on. One adapter is staged at a time.

`turn` alone has ranks do anything: requests come and go, and end, without a call of all of them.
"""

from __future__ import annotations

import time
from collections import deque

import msgspec

from cluster.deadline import Clock
from cluster.errors import AdapterGone, AdapterUnread, SplitserveError
from engine.contract.adapters import AdapterNews, LoadAdapter, UnloadAdapter
from engine.model.adapters.rank_adapters import Staged
from engine.model.adapters.words import ClearAdapter, SettleAdapter, StageAdapter
from engine.runner.replica_adapters import ReplicaAdapters
from engine.step.adapter_turns import AdapterTurns
from engine.step.bank_places import BankPlace, BankPlaces
from engine.step.requests.adapter_use import AdapterUse
from engine.step.waiting_uses import WaitingUses

SETTLE_INTERVAL_S = 0.005
"""Ranks are asked so often how far they are, each time in a call of all."""
PASSED_S = 2.0
"""So long who is in the bank is let in, however many lack room: else adapters would give way to
each other with every answer, and be read each time."""


class Adapting:
    """Of one engine. From its one thread, between two steps."""

    def __init__(self, adapters: ReplicaAdapters, *, clock: Clock = time.monotonic) -> None:
        self._adapters, self._clock = adapters, clock
        self._bank = BankPlaces(adapters.room)
        self._known: dict[str, LoadAdapter] = {}
        self._waiting = WaitingUses()
        self._turns = AdapterTurns()
        self._unasked: deque[str] = deque()
        """Known and to be read where there is room, though nobody has asked yet."""
        self._leaving: set[str] = set()
        """No more are let in; gone with the last who has it."""
        self._staged: str | None = None
        self._settle_s = 0.0
        self._lacking: str | None = None
        """The adapter of the first, which lacked room at the last turn, and stays the first."""
        self._lacking_s = 0.0
        """Since when."""
        self._closed: BankPlace | None = None
        """The place that is to become free for it."""
        self._tried: tuple[str, int] | None = None
        """That there was no place for, and at which `num_freed`."""
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
        if command.lora_rank > self._bank.num_lora_ranks:
            most = self._bank.num_lora_ranks
            self._tell(
                command.digest,
                f"its rank is {command.lora_rank}, and there is room for {most} (--adapter-ranks)",
            )
        elif command.digest in self._bank or command.digest in self._known:
            self._known[command.digest] = command
            self._tell(command.digest)
        else:
            self._known[command.digest] = command
            self._unasked.append(command.digest)

    def unload(self, command: UnloadAdapter) -> None:
        """Nobody asks for it any more; who has it goes on with it, and the turn after the last lets
        go of it."""
        self._known.pop(command.digest, None)
        if command.digest in self._bank:
            self._leaving.add(command.digest)

    def enter(self, digest: str, owner: bytes = b"") -> AdapterUse:
        """For a new request, which has it from a later turn on. Raises AdapterGone where it is not
        known here."""
        if digest not in self._known:
            raise AdapterGone(f"this worker has not loaded the adapter {digest}")
        use = AdapterUse(digest, self.leave, owner)
        self._waiting.add(use)
        return use

    def leave(self, use: AdapterUse) -> None:
        """See AdapterUse."""
        if use.slot is None:
            self._waiting.remove(use)
            return
        self._bank.release(use.digest)
        use.slot = None

    def turn(self) -> None:
        """Settles what is staged, lets go of what was left, lets in who can be, and stages what the
        next one waits for. Raises RankLost."""
        self._settle()
        self._drop_left()
        if not self._waiting.waits_for(self._lacking):
            self._lacking = self._closed = None
        for digest in self._waiting.digests:
            self._hold(digest)
        self._stage_next()
        if self._waiting:
            self._leave_unasked()
        elif self._staged is None:
            self._stage_unasked()

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        found = list(self._bank.check_invariants())
        if self._closed is not None and self._lacking is None:
            found.append("adapters are closed for nobody")
        return found

    def num_users(self, digest: str) -> int:
        """Requests that hold it."""
        resident = self._bank.get(digest)
        return 0 if resident is None else resident.num_users

    def _lacks(self, digest: str) -> None:
        """The first of all that lack room."""
        now_s = self._clock()
        if digest != self._lacking:
            self._lacking, self._lacking_s, self._closed = digest, now_s, None
        elif self._closed is None and now_s - self._lacking_s >= PASSED_S:
            self._closed = self._bank.place_for(self._known[digest].lora_rank)

    def _is_open(self, digest: str) -> bool:
        """It is not about to give way."""
        return self._closed is None or digest not in self._closed.in_way

    def _hold(self, digest: str) -> None:
        """By all that wait for it, if it is there. Before any gives way: one that was read for
        somebody does not go before he has it."""
        resident = self._bank.get(digest)
        if resident is None or not resident.is_placed or not self._is_open(digest):
            return
        for use in self._waiting.of(digest):
            use.slot = self._bank.hold(digest)
            self._waiting.remove(use)

    def _stage_next(self) -> None:
        """The first that there is room for, and none behind one that lacks it. While nothing has
        changed, many that wait take no longer than one."""
        if self._staged is not None or not self._waiting:
            return
        first = self._lacking  # whoever waits for it stays the first
        if first in self._known and self._tried == (first, self._bank.num_freed):
            self._lacks(first)
            return
        for use in self._turns.in_order(self._waiting, self._lacking):
            if use.digest in self._bank:
                continue  # it is to give way
            command = self._known.get(use.digest)
            if command is None:
                use.error = AdapterGone(f"the adapter {use.digest} was unloaded")
                self._waiting.remove(use)
            else:
                if self._stage(command, may_evict=True):
                    self._turns.taken(use.owner)
                else:
                    self._lacks(use.digest)
                return

    def _leave_unasked(self) -> None:
        """Who waits comes first, and there may always be somebody: these may be asked for at once,
        and are read then."""
        while self._unasked:
            digest = self._unasked.popleft()
            if digest in self._known and digest not in self._bank:
                self._tell(digest)

    def _stage_unasked(self) -> None:
        while self._unasked:
            command = self._known.get(self._unasked.popleft())
            if command is None or command.digest in self._bank:
                continue
            if self._stage(command, may_evict=False):
                return
            self._tell(command.digest)  # it is read when somebody asks

    def _stage(self, command: LoadAdapter, *, may_evict: bool) -> bool:
        """False: there is no room now."""
        digest, looked = command.digest, (command.digest, self._bank.num_freed)
        if looked == self._tried:
            return False
        place = self._bank.place_for(command.lora_rank)
        if digest == self._lacking and self._closed is not None and not self._bank.is_free(place):
            place = self._closed
        if not self._bank.is_free(place):
            self._tried = looked
            return False
        if place.in_way and not may_evict:
            return False
        for other in place.in_way:
            self._evict(other)
        num_bytes = command.lora_rank * self._adapters.lora_rank_bytes
        slot = self._bank.put(digest, place.start, command.lora_rank, num_bytes=num_bytes)
        self._lacking = self._closed = None
        self._staged, self._settle_s = digest, self._clock()
        word = StageAdapter(
            root=command.root,
            folder=command.folder,
            digest=digest,
            slot=slot,
            start=place.start,
            lora_rank=command.lora_rank,
        )
        self._adapters.follow(word)
        return True

    def _evict(self, digest: str) -> None:
        if digest in self._bank:  # else it was unloaded, and left by all, since it was closed
            self._drop(digest)
            if digest in self._known:
                self._tell(digest)

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
            self._bank.arrive(digest)
            if digest not in self._leaving:  # else it was unloaded meanwhile, and goes at once
                self._tell(digest)
        else:
            self._fail(digest, self._adapters.failure or AdapterUnread("it was given up"))

    def _fail(self, digest: str, failure: SplitserveError) -> None:
        """Who waits for it is told; it may be loaded anew."""
        self._drop(digest)
        self._known.pop(digest, None)
        self._leaving.discard(digest)
        for use in self._waiting.of(digest):
            use.error = AdapterGone(failure.message)
            self._waiting.remove(use)
        self._tell(digest, failure.message, may_pass=isinstance(failure, AdapterUnread))

    def _drop_left(self) -> None:
        for digest in list(self._leaving):
            item = self._bank.get(digest)
            if item is not None and item.is_held:
                continue
            self._leaving.discard(digest)
            if item is not None:
                self._drop(digest)

    def _drop(self, digest: str) -> None:
        item = self._bank.drop(digest)
        if item.is_placed:
            self._adapters.follow(ClearAdapter(item.slot))

    def _tell(self, digest: str, failure: str = "", *, may_pass: bool = False) -> None:
        resident = self._bank.get(digest)
        news = AdapterNews(digest, is_resident=False, failure=failure, may_pass=may_pass)
        if resident is not None and resident.is_placed:
            news = msgspec.structs.replace(news, is_resident=True, num_bytes=resident.num_bytes)
        self._news.append(news)
