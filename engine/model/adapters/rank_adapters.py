"""One rank's part in loading adapters: what it does when a word of the conductor comes.

StageAdapter -> reading, in a thread of its own -> read | failed, with the cause
SettleAdapter -> of all ranks the least: READING: not yet; FAILED: nobody has it; READ: placed
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from cluster.errors import SplitserveError
from engine.model.adapters.bank import AdapterBank
from engine.model.adapters.reading import read_into
from engine.model.adapters.words import AdapterWord, ClearAdapter, SettleAdapter, StageAdapter

_LOG = structlog.get_logger()

Agree = Callable[[int], int]
"""A number of this rank -> the smallest of all ranks'. Each calls it for the same word."""


class Staged(enum.IntEnum):
    """Of what was staged; the least of all ranks counts."""

    FAILED = 0
    READING = 1
    READ = 2


class RankAdapters:
    """Called from the rank's one thread, between the steps around the word."""

    def __init__(self, bank: AdapterBank, agree: Agree) -> None:
        self._bank, self._agree = bank, agree
        self._reading: _Reading | None = None

    @property
    def failure(self) -> str:
        """Why the one that was settled last could not be read here; empty: it could."""
        return "" if self._reading is None else self._reading.failure

    def follow(self, word: AdapterWord) -> Staged:
        """Returns at once, but for a collective."""
        match word:
            case StageAdapter():
                self._reading = _Reading(self._bank, word)
            case SettleAdapter():
                return self._settle()
            case ClearAdapter():
                self._bank.clear(word.slot)
        return Staged.READING

    def _settle(self) -> Staged:
        reading = self._reading
        assert reading is not None, "what is settled was staged"
        outcome = Staged(self._agree(int(reading.progress)))
        if outcome is Staged.FAILED and reading.progress is Staged.READING:
            reading.join()  # it must not write to ranks that become another adapter's
        if outcome is Staged.READ:
            word = reading.word
            self._bank.place(word.slot, word.start, reading.ranks)
        return outcome


class _Reading:
    """One staging, and its thread."""

    def __init__(self, bank: AdapterBank, word: StageAdapter) -> None:
        self.word = word
        self.ranks: dict[str, int] = {}
        self.failure = ""
        self._bank = bank
        self._is_read = False
        self._thread = threading.Thread(target=self._run, name="adapter", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Staged:
        """At this moment."""
        if self.failure:
            return Staged.FAILED
        return Staged.READ if self._is_read else Staged.READING

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join()

    def _run(self) -> None:
        word = self.word
        try:
            self.ranks = read_into(
                self._bank,
                Path(word.root),
                Path(word.folder),
                digest=word.digest,
                start=word.start,
            )
            self._is_read = True
        except SplitserveError as error:
            self.failure = error.message
        except Exception as error:
            _LOG.exception("an adapter could not be read", folder=word.folder)
            self.failure = f"the adapter could not be read ({type(error).__name__})"
