"""One rank's part in loading adapters: what it does when a word of the conductor comes.

Stage -> reading, in a thread of its own -> read | failed, with the cause
Settle -> of all ranks the least: READING: not yet; FAILED: nobody has it; READ: placed
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
from engine.model.adapters.words import AdapterWord, Clear, Settle, Stage

_LOG = structlog.get_logger()

Agree = Callable[[int], int]
"""A number of this rank -> the smallest of all ranks'. Each calls it for the same word."""


class Progress(enum.IntEnum):
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

    def follow(self, word: AdapterWord) -> Progress:
        """Returns at once, but for a collective."""
        match word:
            case Stage():
                self._reading = _Reading(self._bank, word)
            case Settle():
                return self._settle()
            case Clear():
                self._bank.clear(word.slot)
        return Progress.READING

    def _settle(self) -> Progress:
        reading = self._reading
        assert reading is not None, "what is settled was staged"
        outcome = Progress(self._agree(int(reading.progress)))
        if outcome is Progress.FAILED and reading.progress is Progress.READING:
            reading.join()  # it must not write to ranks that become another adapter's
        if outcome is Progress.READ:
            word = reading.word
            self._bank.place(word.slot, word.start, reading.ranks)
        return outcome


class _Reading:
    """One staging, and its thread."""

    def __init__(self, bank: AdapterBank, word: Stage) -> None:
        self.word = word
        self.ranks: dict[str, int] = {}
        self.failure = ""
        self._bank = bank
        self._is_read = False
        self._thread = threading.Thread(target=self._run, name="adapter", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        """At this moment."""
        if self.failure:
            return Progress.FAILED
        return Progress.READ if self._is_read else Progress.READING

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
