"""What reads blocks of other workers for an engine: with a thread of its own, or turned by hand."""

from __future__ import annotations

from typing import Protocol

from cluster.kv_peer import KvPeer
from kvtransfer.read_job import ReadJob, ReadResult


class Sources(Protocol):
    """Whose blocks can be read."""

    @property
    def transport_in_use(self) -> str:
        """In words; empty before the first connection."""

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """Makes the peer readable for jobs that are submitted afterwards; why it cannot be read is
        the error of those jobs. An engine sends it once for each handshake."""

    def disconnect(self, incarnation: str) -> None:
        """That process is gone: its jobs fail within about a second."""


class Jobs(Protocol):
    """What is read."""

    @property
    def busy(self) -> bool:
        """True while a job is unfinished or a result has not been polled."""

    def has_reads(self, request_id: str) -> bool:
        """True while reads into this request's blocks may be in flight: keep them out of use."""

    def submit(self, job: ReadJob) -> None:
        """Ends in one ReadResult. Jobs of one peer are read side by side."""

    def cancel(self, request_id: str) -> bool:
        """Ends the request's jobs early; their results come when nothing is in flight for them.

        Returns whether there are any, so whether the request's blocks are still held.
        """

    def abandon(self, request_id: str, incarnation: str) -> None:
        """The request's jobs from that peer end within about a second; when the peer's link stands
        still they are broken off."""

    def drop(self, job: ReadJob) -> None:
        """Ends this one early, which is read in vain, if it still is under way; its result comes
        when nothing is in flight for it."""


class Reader(Sources, Jobs, Protocol):
    """No call waits for a network."""

    def poll(self) -> list[ReadResult]:
        """Results since the last call. Raises when nothing can be read any more: then what is held
        stays held, and the process has to end."""

    def close(self) -> object:
        """Ends every job and the transport. Idempotent."""
