"""All fetches of one reader, turn by turn: the reading thread's conductor, without the thread.

A peer that dies shows itself: its reads fail. A peer that hangs does not; then the deadline of a
fetch ends its reads by force (`Transport.abort`), so that every fetch ends, and ends drained.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import SplitserveError
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from kvtransfer.fetch import Fetch, FetchState, FetchTools
from kvtransfer.fetch_job import FetchJob, FetchResult

DISCONNECT_GRACE_S = 1.0
"""Reads from a peer that is known to be gone may take this long to fail by themselves."""

_log = get_logger("kvtransfer")


class FetchLoop:
    """Owned by one thread. `clock` gives monotonic seconds."""

    def __init__(self, tools: FetchTools, *, timeout_s: float, clock: Callable[[], float]) -> None:
        self._tools = tools
        self._timeout_s = timeout_s
        self._clock = clock
        self._fetches: list[Fetch] = []
        self._known: dict[str, KvPeer] = {}
        self._refused: dict[str, str] = {}
        self._leaving: set[str] = set()

    @property
    def num_fetches(self) -> int:
        """Fetches that have not ended."""
        return len(self._fetches)

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """A failure is kept: fetches from this peer will report it. Again the same is nothing."""
        known = self._known.get(incarnation)
        if known not in (None, peer) and self._fetches_from(incarnation):
            self._abort(incarnation, f"{incarnation} has another pool now")
        self._leaving.discard(incarnation)
        self._refused.pop(incarnation, None)
        self._known[incarnation] = peer
        try:
            self._tools.transport.connect(incarnation, peer)
        except SplitserveError as error:
            _log.warning("cannot connect", incarnation=incarnation, error=error.message)
            self._refused[incarnation] = error.message

    def disconnect(self, incarnation: str) -> None:
        """The peer is gone: its fetches end now, or within the grace when reads are in flight."""
        self._refused.pop(incarnation, None)
        self._leaving.add(incarnation)
        limit = self._clock() + DISCONNECT_GRACE_S
        for fetch in self._fetches_from(incarnation):
            fetch.give_up(f"{incarnation} is gone")
            fetch.deadline = min(fetch.deadline, limit)

    def add(self, job: FetchJob) -> None:
        """Starts at the next turn. Its deadline counts from here."""
        fetch = Fetch(job, self._tools, deadline=self._clock() + self._timeout_s)
        if job.incarnation in self._refused:
            fetch.give_up(self._refused[job.incarnation])
        self._fetches.append(fetch)

    def cancel(self, request_id: str) -> None:
        """The request's fetches end as soon as nothing is in flight for them."""
        for fetch in self._fetches:
            if fetch.job.request_id == request_id:
                fetch.give_up("cancelled")

    def turn(self) -> tuple[list[FetchResult], bool]:
        """One step of every fetch; returns what ended, and whether anything moved."""
        now = self._clock()
        moved = [self._advance(fetch, now) for fetch in self._fetches]
        self._enforce_deadlines(now)
        results = [fetch.result() for fetch in self._fetches if fetch.state is FetchState.ENDED]
        self._fetches = [fetch for fetch in self._fetches if fetch.state is not FetchState.ENDED]
        self._finish_leaving()
        return results, any(moved) or bool(results)

    def close(self) -> list[FetchResult]:
        """Ends everything by force."""
        for fetch in self._fetches:
            fetch.give_up("this worker is shutting down")
        self._tools.transport.close()
        return self.turn()[0]

    def _advance(self, fetch: Fetch, now: float) -> bool:
        """A bug met on the way of one fetch ends that fetch alone."""
        try:
            return fetch.advance(now)
        except Exception as error:
            _log.exception("a fetch failed", request_id=fetch.job.request_id)
            fetch.give_up(f"internal error: {type(error).__name__}")
            return True

    def _enforce_deadlines(self, now: float) -> None:
        for fetch in self._fetches:
            if fetch.state is FetchState.ENDED or now < fetch.deadline:
                continue
            incarnation, hangs = fetch.job.incarnation, fetch.is_in_flight
            fetch.give_up(f"no answer from {incarnation} within {self._timeout_s} s")
            if hangs:
                self._abort(incarnation, f"{incarnation} hangs and was cut off")
            self._advance(fetch, now)

    def _abort(self, incarnation: str, error: str) -> None:
        _log.warning("reads are ended by force", incarnation=incarnation, reason=error)
        for fetch in self._fetches_from(incarnation):
            fetch.give_up(error)
        self._tools.transport.abort(incarnation)
        for fetch in self._fetches:
            if fetch.job.incarnation != incarnation:
                fetch.resume_interrupted()

    def _finish_leaving(self) -> None:
        for incarnation in list(self._leaving):
            if not self._fetches_from(incarnation):
                self._leaving.remove(incarnation)
                self._known.pop(incarnation, None)
                self._tools.transport.disconnect(incarnation)

    def _fetches_from(self, incarnation: str) -> list[Fetch]:
        return [fetch for fetch in self._fetches if fetch.job.incarnation == incarnation]
