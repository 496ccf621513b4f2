"""The router's stream to one decode worker: requests out, one frame per engine step back.

    CONNECTING --both have said who they are--> OPEN --broken--> CONNECTING ...      close: CLOSED
        '--somebody else answers--> `on_mismatch` hears why; CONNECTING ...

When the stream breaks, or a frame cannot be handled, every request on it ends at once with
WorkerLost; the session connects again until it is closed, which happens when the worker is no
member any more.
"""

from __future__ import annotations

import asyncio
import enum

from cluster.dial.dialer import SessionLink
from cluster.errors import (
    InvalidRequest,
    NotReady,
    PairingMismatch,
    SplitserveError,
    WorkerLost,
    WrongWorker,
)
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.process.background import Background, nothing_needed, until_one_ends
from cluster.process.backoff import Backoff
from cluster.process.own_lateness import SeenTimeout
from cluster.wire import identity_from_wire, identity_to_wire, load_from_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from protos import worker_pb2
from router.fleet.own_address import own_address
from router.fleet.request_stream import NOBODY, RequestStream, StreamListener
from router.fleet.unread import UnreadBytes
from router.fleet.wakes import Wakes
from router.fleet.worker_link import NOBODY_HEARS, LinkEvents

CONNECT_TIMEOUT_S = 2.0
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 1.0

_log = get_logger("worker_session")


class SessionLost(WorkerLost):
    """The way to the process is broken, for now at least: of the process itself it says nothing."""


class SessionState(enum.Enum):
    """Whether requests can be sent."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class WorkerSession:
    """One per decode worker process. All calls from the event loop.

    `unread` is the router's, of all its sessions.
    """

    def __init__(
        self,
        member: Member,
        world: World,
        events: LinkEvents = NOBODY_HEARS,
        unread: UnreadBytes | None = None,
    ) -> None:
        self._meant = WorkerIdentity(member.key, member.pairing)
        self._address = own_address(member)
        self._world = world
        self._events = events
        self._unread = unread or UnreadBytes()
        self._wakes = Wakes(world.clock)
        self._state = SessionState.CONNECTING
        self._streams: dict[str, RequestStream] = {}
        self._outgoing: asyncio.Queue[worker_pb2.RouterMessage] = asyncio.Queue()
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        self._has_said_fault = False
        self._follows_grammars = member.pairing.follows_grammars
        self._searches_beams = member.pairing.searches_beams

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        return self._state is SessionState.OPEN

    @property
    def num_in_flight(self) -> int:
        """Requests sent and not ended."""
        return len(self._streams)

    def start(self) -> None:
        """Connects in the background."""
        self._background.keep(f"session with {self._meant.key.worker_id}", self._run)

    async def close(self, reason: str) -> None:
        """Ends every request with WorkerLost and stays closed; idempotent."""
        self._state = SessionState.CLOSED
        self._lose(reason)
        await self._background.close()

    def submit(
        self,
        submit: worker_pb2.Submit,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        listener: StreamListener = NOBODY,
    ) -> RequestStream:
        """Sends a request that may produce `max_tokens` over all choices, and score
        `max_prompt_tokens` of the prompt.

        Raises WorkerLost when the stream is not open, NotReady where the worker could not know all
        that is asked, and InvalidRequest for an id in use.
        """
        request_id = submit.request_id
        if not self.is_open:
            raise self._lost("is not connected")
        if request_id in self._streams:
            raise InvalidRequest(
                f"request_id {request_id!r} is in use; choose another", param="request_id"
            )
        if submit.sampling.HasField("grammar") and not self._follows_grammars:
            raise NotReady("this worker is of a version that follows no grammars")
        if submit.sampling.HasField("beams") and not self._searches_beams:
            raise NotReady("this worker is of a version that searches no beams")
        stream = RequestStream(
            max_tokens=max_tokens,
            max_prompt_tokens=max_prompt_tokens,
            has_logprobs=submit.sampling.HasField("logprobs"),
            on_finish=lambda choice: self._finish(request_id, choice),
            on_close=lambda: self._drop(request_id),
            listener=listener,
            unread=self._unread,
            wakes=self._wakes,
            clock=self._world.clock,
        )
        self._streams[request_id] = stream
        self._outgoing.put_nowait(worker_pb2.RouterMessage(submit=submit))
        return stream

    async def _run(self) -> None:
        backoff = Backoff(first_s=FIRST_RETRY_S, longest_s=LAST_RETRY_S)
        while True:
            if await self._connect_and_serve():
                backoff.start_anew()
            await self._world.sleep(backoff.next_delay_s(healthy_s=0.0))

    async def _connect_and_serve(self) -> bool:
        """One connection's life; True when it had become usable."""
        self._outgoing = asyncio.Queue()
        link = self._world.dialer.session(self._address)
        reason, was_open = "closed its stream", False
        try:
            await self._introduce(link)
            was_open = True
            self._opened()
            await until_one_ends(self._read(link), self._write(link))
        except SplitserveError as error:
            reason = error.message
            if isinstance(error, (WrongWorker, PairingMismatch)):
                self._events.on_mismatch(error)
        except Exception as error:
            _log.exception(
                "a decode worker's message could not be handled; it is disconnected",
                worker_id=self._meant.key.worker_id,
            )
            reason = f"sent what the router cannot handle ({type(error).__name__}); see its log"
        finally:
            self._note_broken(reason)
            await link.close()
        return was_open

    async def _introduce(self, link: SessionLink) -> None:
        """Says whom the router means and hears who answers. Raises WrongWorker or PairingMismatch
        when that is somebody else, WorkerLost when nobody does."""
        try:
            async with SeenTimeout(CONNECT_TIMEOUT_S, self._world.clock):
                await link.write(worker_pb2.RouterMessage(open=identity_to_wire(self._meant)))
                first = await link.read()
        except TimeoutError:
            raise WorkerLost(f"did not answer within {CONNECT_TIMEOUT_S:.0f} s") from None
        if first is None or not first.HasField("opened"):
            raise WorkerLost("did not begin with its identity")
        identity_from_wire(first.opened).check(meant=self._meant)

    def _opened(self) -> None:
        self._state = SessionState.OPEN
        key = self._meant.key
        _log.info("connected to a decode worker", worker_id=key.worker_id, address=self._address)
        self._events.on_open()

    def _note_broken(self, reason: str) -> None:
        if self._state is SessionState.OPEN:
            self._state = SessionState.CONNECTING
            worker_id = self._meant.key.worker_id
            _log.warning(
                "a decode worker is disconnected; connecting again",
                worker_id=worker_id,
                reason=reason,
            )
            self._events.on_lost(reason)
        self._lose(reason)

    async def _read(self, link: SessionLink) -> None:
        while (frame := await link.read()) is not None:
            self._take(frame)

    async def _write(self, link: SessionLink) -> None:
        while True:
            await link.write(await self._outgoing.get())

    def _take(self, frame: worker_pb2.WorkerFrame) -> None:
        for scored in frame.prompts:
            stream = self._streams.get(scored.request_id)
            if stream is not None:
                stream.add_prompt(scored)
        for computed in frame.computed:
            stream = self._streams.get(computed.request_id)
            if stream is not None:
                stream.add_computed(computed)
        for searched in frame.searched:
            stream = self._streams.get(searched.request_id)
            if stream is not None:
                stream.add_searched(searched.num_tokens)
        now_s = self._world.clock()
        for tokens in frame.tokens:
            stream = self._streams.get(tokens.request_id)
            if stream is not None:  # else it was cancelled
                stream.add_tokens(tokens, now_s)
        for ended in frame.ended:
            stream = self._streams.pop(ended.request_id, None)
            if stream is not None:
                stream.end(ended)
        self._wakes.flush()
        for item in frame.handoffs:
            self._events.on_handoff(WorkerKey(item.worker_id, item.incarnation), item.failed)
        if frame.HasField("load"):
            self._take_load(load_from_wire(frame.load))

    def _take_load(self, load: EngineLoad) -> None:
        """Prices are made of it: one NaN would go wherever a comparison goes."""
        if (fault := load.fault) is None:
            self._events.on_load(load)
        elif not self._has_said_fault:
            self._has_said_fault = True
            worker_id = self._meant.key.worker_id
            _log.warning("a worker's load is left out", worker_id=worker_id, reason=fault)

    def _finish(self, request_id: str, choice: int) -> None:
        finish = worker_pb2.Finish(request_id=request_id, choices=[choice])
        self._outgoing.put_nowait(worker_pb2.RouterMessage(finish=finish))

    def _drop(self, request_id: str) -> None:
        """Nobody waits for it any more: the worker need not go on, unless it has ended it."""
        if self._streams.pop(request_id, None) is not None and self.is_open:
            cancel = worker_pb2.Cancel(request_id=request_id)
            self._outgoing.put_nowait(worker_pb2.RouterMessage(cancel=cancel))

    def _lose(self, reason: str) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(self._lost(reason))

    def _lost(self, reason: str) -> SplitserveError:
        key = self._meant.key
        return SessionLost(f"decode worker {key.worker_id} at {self._address} {reason}; try again")
