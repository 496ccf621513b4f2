"""Whose bytes a door reads now: so much in a turn of the loop, and its addresses take turns.

    a read comes -> this turn has time left: parsed at once
                '-> it has none: kept, and the connection read no further
                        -> in line -> its address's turn comes -> parsed, and read on

The loop hands out in one turn what all sockets have. 256 connections that sent bodies in chunks of
64 bytes held it for 554 ms so (2-core machine).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.process.loop_share import LoopShare


class WaitingReader(Protocol):
    """One connection with bytes that wait."""

    def read_on(self) -> None:
        """Its turn has come: a slice of work."""


class ReadTurns:
    """One per door; keep `run` running. From the event loop only."""

    def __init__(self, share: LoopShare) -> None:
        """`share`: of the loop, with all others who work there a little at a time."""
        self._share = share
        self._line: dict[str, dict[WaitingReader, None]] = {}
        """By address, the one whose turn is next first."""
        self._is_somebody_there = asyncio.Event()

    def has_turn(self) -> bool:
        """Whether what has come may be read at once; else it waits."""
        return self._share.has_turn()

    def wait(self, address: str, reader: WaitingReader) -> None:
        """In line, behind those of its address."""
        self._line.setdefault(address, {})[reader] = None
        self._is_somebody_there.set()

    def leave(self, address: str, reader: WaitingReader) -> None:
        """Its connection is gone. Idempotent."""
        readers = self._line.get(address, {})
        readers.pop(reader, None)
        if not readers:
            self._line.pop(address, None)

    async def run(self) -> None:
        """For ever: who waits, in turn."""
        while True:
            self._is_somebody_there.clear()
            while self._line:
                await self._share.breathe()
                self._read_one()
            await self._is_somebody_there.wait()

    def _read_one(self) -> None:
        if not self._line:
            return  # they have left
        address, readers = next(iter(self._line.items()))
        reader = next(iter(readers))
        del self._line[address], readers[reader]
        if readers:
            self._line[address] = readers  # last again
        reader.read_on()
