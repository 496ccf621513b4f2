"""The reader without a thread: all jobs of one process, turn by turn, on a clock that is given.

A peer that dies shows itself: its reads fail. A peer that hangs does not: when none of its reads
has landed for as long as its patience lasts, they are ended by force (`Transport.abort`). So are
those of a peer with a broken read, as parts of it may still be under way. So every job ends, and
ends drained. A link that is slow, but moves, is waited for; the request's own deadline ends it.

What goes wrong on the way of one job ends that job. What would leave bytes under way is raised.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import SplitserveError
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from kvtransfer.block_read import BlockRead, BlockReadState, ReadTools
from kvtransfer.peer_link import PeerLink
from kvtransfer.read_job import ReadJob, ReadResult

_log = get_logger("kvtransfer")


class ReaderCore:
    """A Reader, see there; owned by one thread. `clock` gives monotonic seconds."""

    def __init__(self, tools: ReadTools, *, patience_s: float, clock: Callable[[], float]) -> None:
        self._tools = tools
        self._patience_s = patience_s
        self._clock = clock
        self._reads: list[BlockRead] = []
        self._links: dict[str, PeerLink] = {}

    @property
    def transport_in_use(self) -> str:
        """In words; empty before the first connection."""
        return self._tools.transport.in_use

    @property
    def busy(self) -> bool:
        """True while a job is unfinished."""
        return bool(self._reads)

    def has_reads(self, request_id: str) -> bool:
        """True while reads into this request's blocks may be in flight."""
        return any(read.job.request_id == request_id for read in self._reads)

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """A failure is kept: jobs from this peer will report it. Again the same is nothing."""
        link = self._links.get(incarnation)
        if link is not None and link.peer not in (None, peer) and self._reads_over(link):
            self._cut(link, f"{incarnation} has another pool now")
        if link is None or link.peer != peer or link.is_leaving:
            link = self._adopt(self._make_link(incarnation, peer))
        try:
            link.refused = ""
            link.fit = self._tools.transport.connect(incarnation, peer)
        except SplitserveError as error:
            link.refused = error.message
        except Exception as error:
            _log.exception(
                "connecting to a prefill worker failed; reads from it fail", incarnation=incarnation
            )
            link.refused = f"internal error: {type(error).__name__}"
        if link.refused:
            _log.warning(
                "a prefill worker cannot be read from; prompts are computed elsewhere",
                incarnation=incarnation,
                error=link.refused,
            )

    def disconnect(self, incarnation: str) -> None:
        """The peer is gone: its jobs end now, or within the grace when reads are in flight."""
        link = self._links.get(incarnation)
        if link is None:
            return
        link.leave()
        for read in self._reads_over(link):
            read.give_up(f"{incarnation} is gone")

    def submit(self, job: ReadJob) -> None:
        """Starts at the next turn."""
        link = self._links.get(job.incarnation)
        if link is None:  # the transport will say that nobody has connected it
            link = self._make_link(job.incarnation, None)
        read = BlockRead(job, self._tools, link)
        read.give_up(link.problem)
        self._reads.append(read)

    def cancel(self, request_id: str) -> bool:
        """The request's jobs end as soon as nothing is in flight for them."""
        for read in self._reads:
            if read.job.request_id == request_id:
                read.give_up("cancelled")
        return self.has_reads(request_id)

    def abandon(self, request_id: str, incarnation: str) -> None:
        """The request's reads from that peer have the grace of one that is gone."""
        for read in self._reads:
            if read.job.request_id == request_id and read.job.incarnation == incarnation:
                read.give_up(f"{incarnation} was given up")
                read.is_abandoned = True
                read.link.doubt()

    def drop(self, job: ReadJob) -> None:
        """Ends as soon as nothing is in flight for it."""
        for read in self._reads:
            if read.job is job:
                read.give_up("dropped")

    def poll(self) -> list[ReadResult]:
        """One turn; what has ended in it."""
        return self.turn()[0]

    def turn(self) -> tuple[list[ReadResult], bool]:
        """One step of every job; returns what ended, and whether anything moved.

        Raises what `Transport.abort` raises: then bytes may land in blocks that are given back.
        """
        moved = [self._advance(read) for read in self._reads]
        if self._cut_where_needed():
            moved += [self._advance(read) for read in self._reads if read.error]
        ended = [read for read in self._reads if read.state is BlockReadState.ENDED]
        self._reads = [read for read in self._reads if read.state is not BlockReadState.ENDED]
        self._finish_leaving()
        return [read.result() for read in ended], any(moved)

    def close(self) -> list[ReadResult]:
        """Ends everything by force; returns what that ended. Idempotent."""
        for read in self._reads:
            read.give_up("this worker is shutting down")
        self._tools.transport.close()
        return self.turn()[0]

    def _make_link(self, incarnation: str, peer: KvPeer | None) -> PeerLink:
        return PeerLink(incarnation, peer, patience_s=self._patience_s, clock=self._clock)

    def _adopt(self, link: PeerLink) -> PeerLink:
        """Jobs that were under way over an earlier link of the same peer end with that one."""
        self._links[link.incarnation] = link
        return link

    def _advance(self, read: BlockRead) -> bool:
        """A bug met on the way of one job ends that job alone, if it can be ended at all."""
        if read.state is BlockReadState.ENDED:
            return False
        try:
            return read.advance(self._clock())
        except Exception as error:
            if read.error:
                raise
            _log.exception("a read of blocks failed; it is ended", request_id=read.job.request_id)
            read.give_up(f"internal error: {type(error).__name__}")
            return True

    def _cut_where_needed(self) -> bool:
        was_cut = False
        for link in {id(read.link): read.link for read in self._reads}.values():
            reads = self._reads_over(link)
            broken = [read.error for read in reads if read.is_broken]
            link.is_doubted = any(read.is_abandoned for read in reads)
            if broken:
                self._cut(link, broken[0])
            elif link.hangs():
                self._cut(link, link.verdict())
            else:
                continue
            was_cut = True
        return was_cut

    def _cut(self, link: PeerLink, reason: str) -> None:
        _log.warning(
            "all reads from a prefill worker are broken off; its prompts are computed elsewhere",
            incarnation=link.incarnation,
            reason=reason,
        )
        for read in self._reads_over(link):
            read.give_up(reason)
        link.rest()
        self._tools.transport.abort(link.incarnation)
        for read in self._reads:
            self._resume(read)

    def _resume(self, read: BlockRead) -> None:
        try:
            read.resume_interrupted()
        except SplitserveError as error:
            read.give_up(error.message)
        except Exception as error:
            _log.exception(
                "an interrupted read of blocks could not go on; it is ended",
                request_id=read.job.request_id,
            )
            read.give_up(f"internal error: {type(error).__name__}")

    def _finish_leaving(self) -> None:
        for link in [link for link in self._links.values() if link.is_leaving]:
            if not self._reads_over(link):
                del self._links[link.incarnation]
                self._forget(link.incarnation)

    def _forget(self, incarnation: str) -> None:
        try:
            self._tools.transport.disconnect(incarnation)
        except Exception:  # nothing of it is in flight
            _log.exception("a prefill worker could not be disconnected", incarnation=incarnation)

    def _reads_over(self, link: PeerLink) -> list[BlockRead]:
        return [read for read in self._reads if read.link is link]
