"""One rank's part in loading adapters: what it does when a word of the conductor comes.

StageAdapter -> reading, in a thread of its own -> read | failed, with the cause | stalled: failed
SettleAdapter -> of all ranks the least: READING: not yet; REFUSED, FAILED: nobody has it; READ:
                 placed

Nothing here waits for files. A reading that is given up while its files do not answer is left to
itself, without leave to write: its LoRA ranks are the next one's.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from cluster.deadline import Clock
from cluster.errors import AdapterUnread, SplitserveError
from cluster.process.own_lateness import SeenTime
from engine.model.adapters.bank import AdapterBank
from engine.model.adapters.permit import Permit
from engine.model.adapters.reading import read_into
from engine.model.adapters.words import AdapterWord, ClearAdapter, SettleAdapter, StageAdapter

STALL_S: Final = 30.0
"""Without a chunk of a file or a matrix, by looks, of which each counts for a second at most: the
reading has failed. An engine that was stopped meanwhile has waited for no files."""
MAX_LEFT: Final = 4
"""Readings that were given up and have not ended: with so many none is begun. Each keeps a thread,
and a chunk of what it has read."""
_LOG = structlog.get_logger()

Agree = Callable[[int], int]
"""A number of this rank -> the smallest of all ranks'. Each calls it for the same word."""


class Staged(enum.IntEnum):
    """Of what was staged; the least of all ranks counts."""

    REFUSED = 0
    """For good: it is wrong."""
    FAILED = 1
    """Another time it may be read."""
    READING = 2
    READ = 3


class RankAdapters:
    """Called from the rank's one thread, between the steps around the word."""

    def __init__(self, bank: AdapterBank, agree: Agree, *, clock: Clock = time.monotonic) -> None:
        self._bank, self._agree, self._clock = bank, agree, clock
        self._reading: _Reading | None = None
        self._left: list[_Reading] = []
        self.outcome = Staged.READING
        """At all ranks, of the last word to settle."""
        self.failure: SplitserveError | None = None
        """Why the one that was settled last could not be read here, before it was given up; None:
        it could. AdapterUnread: another time it may be."""

    def follow(self, word: AdapterWord) -> Staged:
        """Returns at once, but for a collective."""
        match word:
            case StageAdapter():
                self._stage(word)
            case SettleAdapter():
                return self._settle()
            case ClearAdapter():
                self._bank.clear(word.slot)
        return Staged.READING

    def _stage(self, word: StageAdapter) -> None:
        self._reading = _Reading(self._bank, word, self._clock)
        self._left = [reading for reading in self._left if reading.is_alive]
        if len(self._left) < MAX_LEFT:
            self._reading.start()
        else:
            self._reading.fail(
                AdapterUnread(f"{MAX_LEFT} adapters are being read whose files do not answer")
            )

    def _settle(self) -> Staged:
        reading = self._reading
        assert reading is not None, "what is settled was staged"
        self.outcome = outcome = Staged(self._agree(int(reading.progress)))
        self.failure = reading.failure  # what is given up fails of that
        if outcome < Staged.READING:
            self._give_up(reading)
        if outcome is Staged.READ:
            word = reading.word
            self._bank.place(word.slot, word.start, reading.lora_ranks)
        return outcome

    def _give_up(self, reading: _Reading) -> None:
        """It must not write to LoRA ranks that become another adapter's."""
        reading.give_up()
        if reading.is_alive:
            self._left.append(reading)
        if self.failure:
            folder, cause = reading.word.folder, self.failure.message
            _LOG.warning("an adapter was not read", folder=folder, cause=cause)


class _Reading:
    """One staging, and its thread."""

    def __init__(self, bank: AdapterBank, word: StageAdapter, clock: Clock) -> None:
        self.word = word
        self.lora_ranks: dict[str, int] = {}
        self.failure: SplitserveError | None = None
        self._bank = bank
        self._is_read = False
        self._permit, self._patience, self._num_seen = Permit(), SeenTime(clock), 0
        self._thread = threading.Thread(target=self._run, name="adapter", daemon=True)

    def start(self) -> None:
        """Once, or `fail`. Without a thread for it it has failed, and another time there may be
        one."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self.fail(AdapterUnread(f"there is no thread to read it in ({error})"))

    @property
    def is_alive(self) -> bool:
        """Its thread has not ended."""
        return self._thread.is_alive()

    @property
    def progress(self) -> Staged:
        """At this moment."""
        if not self.failure and not self._is_read and self._stalled_s() > STALL_S:
            self.fail(AdapterUnread(f"the adapter's files have given nothing for {STALL_S:g} s"))
        if self.failure:
            return Staged.FAILED if isinstance(self.failure, AdapterUnread) else Staged.REFUSED
        return Staged.READ if self._is_read else Staged.READING

    def fail(self, cause: SplitserveError) -> None:
        """For the first cause."""
        self.failure = self.failure or cause

    def give_up(self) -> None:
        """It writes nothing more."""
        self._permit.take_back()

    def _stalled_s(self) -> float:
        """Since the last progress that was seen; a look."""
        num_done, before = self._permit.num_done, self._num_seen
        self._num_seen = num_done
        if num_done != before:
            self._patience.renew()
        return self._patience.look()

    def _run(self) -> None:
        word = self.word
        try:
            self.lora_ranks = read_into(self._bank, word, self._permit)
            self._is_read = True
        except SplitserveError as error:
            self.fail(error)
        except Exception as error:
            _LOG.exception("an adapter could not be read", folder=word.folder)
            self.fail(AdapterUnread(f"the adapter could not be read ({type(error).__name__})"))
