"""The decode worker's part of its engine process: blocks of prefill workers come into the pool.

    Reserved (seen in a frame) -> where the blocks of a request go
    Fetch -> reading thread -> Deliver to the engine, Fetched to the server
    the request ends -> no read begins any more; the engine keeps blocks that `holds` names

A read never begins for a request that has ended. An end is seen in a frame at the latest; a Seed or
PrefillLocally in the same turn may cause one, so reads behind them wait for that turn's frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster.errors import SplitserveError
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from engine.messages import (
    Cancel,
    Command,
    Connect,
    Deliver,
    Disconnect,
    Fetch,
    Fetched,
    Frame,
    PrefillLocally,
    Seed,
)
from kvtransfer.block_reader import BlockReader
from kvtransfer.fetch_job import FetchJob, FetchResult

RATE_WEIGHT = 0.2
"""Of the newest read in the moving average of the transfer rate: about five reads of memory."""
_log = get_logger("decode_worker.intake")


class KvIntake:
    """An engine Extension; see there. Owns the reader, its thread and its transport."""

    def __init__(self, reader: BlockReader, kv_transport: str) -> None:
        self._reader = reader
        self._kv_transport = kv_transport
        self._said_transport = ""
        self._block_tables: dict[str, Sequence[int]] = {}
        self._unsure: set[str] = set()
        self._waiting: list[Fetch] = []
        self._fetched: list[Fetched] = []
        self._bytes_per_s = 0.0

    @property
    def peer(self) -> KvPeer | None:
        """This pool is not exported."""
        return None

    @property
    def transport(self) -> str:
        """The link that reads take, once there was one."""
        return self._reader.transport_in_use or f"{self._kv_transport}, not connected yet"

    @property
    def busy(self) -> bool:
        """True while reads or answers are under way."""
        return self._reader.busy or bool(self._waiting) or bool(self._fetched)

    def holds(self, request_id: str) -> bool:
        """True while a read into that request's blocks may be in flight."""
        return self._reader.holds(request_id)

    def handle(self, command: Command) -> bool:
        """Takes what is for the intake; watches what may end a request."""
        match command:
            case Connect():
                self._connect(command)
            case Disconnect():
                self._reader.disconnect(command.incarnation)
            case Fetch():
                self._take(command)
            case Cancel():
                self._forget(command.request_id)
                return False
            case Seed() | PrefillLocally():
                self._unsure.add(command.request_id)
                return False
            case _:
                return False
        return True

    def poll(self) -> list[Command]:
        """Verified blocks, for the engine."""
        return [deliver for result in self._reader.poll() for deliver in self._answer(result)]

    def enrich(self, frame: Frame) -> None:
        """Learns who is alive, begins what waited for that, and adds what there is to say."""
        for reserved in frame.reserved:
            self._block_tables[reserved.request_id] = reserved.block_ids
        for ended in frame.ended:
            self._forget(ended.request_id)
        self._unsure.clear()
        waiting, self._waiting = self._waiting, []
        for fetch in waiting:
            self._begin(fetch)
        frame.fetched, self._fetched = self._fetched, []
        self._add_transport(frame)

    def close(self) -> None:
        """Ends every read, the thread and the transport."""
        self._reader.close()

    def _connect(self, command: Connect) -> None:
        """A peer that does not fit is reported by every Fetch from it."""
        try:
            self._reader.connect(command.incarnation, command.peer)
        except SplitserveError as error:
            _log.warning("cannot connect", incarnation=command.incarnation, error=error.message)

    def _take(self, fetch: Fetch) -> None:
        if fetch.request_id in self._unsure:
            self._waiting.append(fetch)
        else:
            self._begin(fetch)

    def _begin(self, fetch: Fetch) -> None:
        table = self._block_tables.get(fetch.request_id)
        last = fetch.first_index + len(fetch.block_ids)
        if table is None or last > len(table):
            self._refuse(fetch, "the request has ended" if table is None else _out_of(table, last))
            return
        self._reader.submit(
            FetchJob(
                request_id=fetch.request_id,
                incarnation=fetch.incarnation,
                first_index=fetch.first_index,
                remote_block_ids=fetch.block_ids,
                generations=fetch.generations,
                digests=fetch.digests,
                local_block_ids=table[fetch.first_index : last],
            )
        )

    def _refuse(self, fetch: Fetch, error: str) -> None:
        self._fetched.append(
            Fetched(fetch.request_id, fetch.incarnation, fetch.first_index, 0, 0, 0.0, error)
        )

    def _answer(self, result: FetchResult) -> list[Command]:
        """The leading verified blocks count; after the first bad one they are read again."""
        first = result.verified[0] if result.verified else None
        is_leading = first is not None and first.first_index == result.first_index
        num_verified = first.num_blocks if first is not None and is_leading else 0
        self._fetched.append(
            Fetched(
                result.request_id,
                result.incarnation,
                result.first_index,
                num_verified,
                result.num_bytes,
                result.duration_ms,
                result.error,
            )
        )
        self._note_rate(result)
        if not num_verified:
            return []
        return [Deliver(result.request_id, result.first_index, num_verified)]

    def _note_rate(self, result: FetchResult) -> None:
        if result.error or result.duration_ms <= 0:
            return
        rate = result.num_bytes / result.duration_ms * 1e3
        past = self._bytes_per_s or rate
        self._bytes_per_s = past + RATE_WEIGHT * (rate - past)

    def _forget(self, request_id: str) -> None:
        if self._block_tables.pop(request_id, None) is not None:
            self._reader.cancel(request_id)

    def _add_transport(self, frame: Frame) -> None:
        if frame.load is not None:
            frame.load = replace(frame.load, kv_bytes_per_s=self._bytes_per_s)
        if self.transport != self._said_transport and not frame.is_empty:
            frame.kv_transport = self._said_transport = self.transport


def _out_of(table: Sequence[int], last: int) -> str:
    return f"block {last - 1} was announced, the prompt has {len(table)}"
