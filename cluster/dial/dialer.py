"""How one process of a fleet reaches another: the seam under every gRPC client.

    Dialer -- membership     --> MembershipLink   worker to router: join, beat, leave
           -- operator       --> OperatorLink     operator to router: what is, and why
           -- supervisor     --> SupervisorLink   supervisor to router: who serves
           -- worker_admin   --> WorkerAdminLink  to a worker, from those two: its word, its orders
           -- session        --> SessionLink      router to decode worker: one stream, both ways
           -- prefill_worker --> PrefillLink      decode to prefill worker: handshake, leases
           -- pooling        --> PoolLink         router to prefill worker: embeddings, scores
           -- prefix_cache   --> PrefixCacheLink  to a worker: what is cached goes to another one

Dialling never waits and never fails: a link connects when it is first used. Whoever dialled it
closes it. Every method raises SplitserveError (a peer that is away, dies, or whose connection is
closed: WorkerLost) or the caller's own cancellation, and nothing of the library below.

All calls from the event loop. `GrpcDialer` is the real one; a simulator brings its own.
"""

from __future__ import annotations

from typing import Protocol

from cluster.deadline import Deadline
from protos import fleet_watch_pb2, handoff_pb2, membership_pb2, router_admin_pb2, worker_pb2


class PrefillStream(Protocol):
    """One prompt at a prefill worker. One reader; the stream is the lease of the blocks there."""

    async def next(self) -> handoff_pb2.PrefillEvent | None:
        """The next event; None when the prefill worker has ended the stream in good order."""

    def close(self) -> None:
        """Releases the blocks there; a `next` under way raises. Idempotent."""


class PrefillLink(Protocol):
    """To one prefill worker, shared by all requests. Closing it ends its streams."""

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, *, timeout_s: float
    ) -> handoff_pb2.HandshakeResponse:
        """Raises PairingMismatch when the two do not fit together."""

    def prefill(self, request: handoff_pb2.PrefillRequest, deadline: Deadline) -> PrefillStream:
        """Asks for a prompt. The other side is told what is left of the deadline."""

    async def lost(self) -> None:
        """Called after a handshake; returns once that connection is gone, by whatever cause."""

    async def close(self) -> None:
        """Idempotent."""


class PoolLink(Protocol):
    """To one prefill worker, shared by all requests."""

    async def pool(
        self, request: handoff_pb2.PoolRequest, deadline: Deadline
    ) -> handoff_pb2.PoolResponse:
        """A caller that is cancelled ends the work there. The other side is told what is left of
        the deadline."""

    async def close(self) -> None:
        """Ends all calls under way. Idempotent."""


class PrefixCacheLink(Protocol):
    """To a worker of either role. Every call fails with DeadlineExceeded after `timeout_s`."""

    async def hand_on(
        self, request: worker_pb2.HandOnRequest, *, timeout_s: float
    ) -> worker_pb2.HandOnReport:
        """Has others take over what it has cached."""

    async def take_over(
        self, request: worker_pb2.TakeOverRequest, *, timeout_s: float
    ) -> worker_pb2.TakeOverReport:
        """Has it take one prefix over. Raises OutOfBlocks where it has no room for that one."""

    async def close(self) -> None:
        """Idempotent."""


class SessionLink(Protocol):
    """To one decode worker. One reader and one writer, which may be different tasks."""

    async def read(self) -> worker_pb2.WorkerFrame | None:
        """The next frame; None when the worker has ended the session in good order."""

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        """Returns when the message is on its way; waits while the worker reads slowly."""

    async def close(self) -> None:
        """Ends the session; a read or write under way raises. Idempotent."""


class MembershipLink(Protocol):
    """To the router. Every call fails with DeadlineExceeded after `timeout_s`."""

    async def join(
        self, request: membership_pb2.JoinRequest, *, timeout_s: float
    ) -> membership_pb2.JoinResponse:
        """Raises what the router has against this worker."""

    async def beat(
        self, request: membership_pb2.BeatRequest, *, timeout_s: float
    ) -> membership_pb2.BeatResponse:
        """Every beat interval."""

    async def leave(self, request: membership_pb2.LeaveRequest, *, timeout_s: float) -> None:
        """Says goodbye."""

    async def close(self) -> None:
        """Idempotent."""


class OperatorLink(Protocol):
    """To a router. Every call fails with DeadlineExceeded after `timeout_s`."""

    async def members(self, *, timeout_s: float) -> membership_pb2.MembersResponse:
        """Its view of its fleet."""

    async def scale(
        self, order: membership_pb2.ScaleOrder, *, timeout_s: float
    ) -> membership_pb2.ScaleAnswer:
        """Asks the supervisor of a router's fleet, by way of the router."""

    async def hold(
        self, order: membership_pb2.HoldOrder, *, timeout_s: float
    ) -> membership_pb2.HoldAnswer:
        """Keeps a worker from new requests, or lets them come again."""

    async def hand_on(
        self, order: membership_pb2.HandOnOrder, *, timeout_s: float
    ) -> membership_pb2.HandOnAnswer:
        """Has other workers take over what one has cached."""

    async def order_load(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        """Has all of its workers give a name to an adapter of their folders."""

    async def order_unload(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        """Has all of its workers let go of what has that name."""

    async def explain(
        self, request: router_admin_pb2.ExplainRequest, *, timeout_s: float
    ) -> router_admin_pb2.ExplainResponse:
        """A router's decisions on one request."""

    async def price(
        self, request: router_admin_pb2.PriceRequest, *, timeout_s: float
    ) -> router_admin_pb2.Decision:
        """How a router would serve a prompt now."""

    async def trace(
        self, request: router_admin_pb2.TraceRequest, *, timeout_s: float
    ) -> router_admin_pb2.TraceResponse:
        """When requests were where, as a router saw it."""

    async def options(self, *, timeout_s: float) -> router_admin_pb2.OptionsResponse:
        """What a router was started with."""

    async def requests(
        self, request: fleet_watch_pb2.RequestsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.RequestsResponse:
        """A router's requests that are under way."""

    async def links(
        self, request: fleet_watch_pb2.LinksRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.LinksResponse:
        """What went over which pair of workers, as a router knows."""

    async def events(
        self, request: fleet_watch_pb2.EventsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.EventsResponse:
        """What has happened, as a router saw it."""

    async def work(self, *, timeout_s: float) -> fleet_watch_pb2.WorkResponse:
        """What workers' time went into, as one router knows it."""

    async def lately(self, *, timeout_s: float) -> fleet_watch_pb2.LatelyResponse:
        """A router's last seconds."""

    async def pressure(self, *, timeout_s: float) -> fleet_watch_pb2.PressureResponse:
        """How near pools are to too few workers, as one router sees it."""

    async def planned(self, word: fleet_watch_pb2.PlannerWord, *, timeout_s: float) -> None:
        """Makes what a planner has decided an event of the router."""

    async def worker_status(
        self, request: router_admin_pb2.WorkerStatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        """The own word of one of its workers, which it asks."""

    async def try_pair(
        self, request: router_admin_pb2.TryPairRequest, *, timeout_s: float
    ) -> router_admin_pb2.PairTrial:
        """How a prompt went over a pair of workers."""

    async def metrics(self, *, timeout_s: float) -> str:
        """A router's numbers, as Prometheus reads them."""

    async def close(self) -> None:
        """Idempotent."""


class WorkerAdminLink(Protocol):
    """To one worker. Every call fails with DeadlineExceeded after `timeout_s`."""

    async def status(
        self, request: worker_pb2.StatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        """Its own word."""

    async def load_adapter(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.LoadAdapterResponse:
        """Gives a name to an adapter of its folder. Raises AdapterRefused where it may not."""

    async def unload_adapter(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.UnloadAdapterResponse:
        """Nothing has that name any more."""

    async def promote(self, *, timeout_s: float) -> None:
        """Of a spare worker: returns once it takes requests and is about to join its router. Raises
        Draining or NotReady where it cannot."""

    async def close(self) -> None:
        """Idempotent."""


class SupervisorLink(Protocol):
    """To a router. Every call fails with DeadlineExceeded after `timeout_s`."""

    async def report(
        self, report: membership_pb2.SupervisorReport, *, timeout_s: float
    ) -> membership_pb2.SupervisorReportTaken:
        """What it shows its operators; it replies with what they order."""

    async def hand_on(
        self, order: membership_pb2.HandOnOrder, *, timeout_s: float
    ) -> membership_pb2.HandOnAnswer:
        """As of an OperatorLink."""

    async def close(self) -> None:
        """Idempotent."""


class Dialer(Protocol):
    """Where links come from. `address` is host:port."""

    def prefill_worker(self, address: str) -> PrefillLink:
        """For a decode worker."""

    def pooling(self, address: str) -> PoolLink:
        """For a router."""

    def prefix_cache(self, address: str) -> PrefixCacheLink:
        """For a router, or a worker that is to leave."""

    def session(self, address: str) -> SessionLink:
        """For a router. The other side sees the session with the first message."""

    def membership(self, address: str) -> MembershipLink:
        """For a worker of either role."""

    def operator(self, address: str) -> OperatorLink:
        """For whoever looks at a fleet."""

    def worker_admin(self, address: str) -> WorkerAdminLink:
        """For a router, or a supervisor."""

    def supervisor(self, address: str) -> SupervisorLink:
        """For whoever keeps a fleet alive."""
