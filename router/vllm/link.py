"""The router's way to one vLLM decode server: a WorkerLink over HTTP.

    not open --answers and is well--> open --does not answer--> not open ...     close: closed

Each request has a connection of its own while it runs, and ends by that: a server that does not
answer a look keeps the requests that it answers still.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from cluster.errors import InvalidRequest, SplitserveError, WorkerLost
from cluster.process.background import Background, nothing_needed
from cluster.world import World
from protos import worker_pb2
from router.fleet.request_stream import NOBODY, RequestStream, StreamListener
from router.fleet.unread import UnreadBytes
from router.fleet.wakes import Wakes
from router.fleet.worker_link import LinkEvents
from router.vllm.cache_doubts import CacheDoubts
from router.vllm.server import VllmServer
from router.vllm.servers import ServerPair, VllmServers
from router.vllm.vllm_request import VllmRequest


class VllmLink:
    """See WorkerLink. One per process that has joined."""

    def __init__(
        self,
        server: VllmServer,
        servers: VllmServers,
        world: World,
        events: LinkEvents,
        unread: UnreadBytes,
    ) -> None:
        self._server = server
        self._servers = servers
        self._world = world
        self._events = events
        self._unread = unread
        self._wakes = Wakes(world.clock)
        self._is_open = self._is_closed = False
        self._running: dict[str, tuple[RequestStream, asyncio.Task[None]]] = {}
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        server.on_work = events.on_work
        self._doubts = CacheDoubts(server, self._background, world, events.on_doubt)

    @property
    def is_open(self) -> bool:
        """See WorkerLink."""
        return self._is_open

    @property
    def num_open_reads(self) -> int:
        """For checks: reads of the server that nobody has judged yet."""
        return self._doubts.num_open

    @property
    def num_late_reads(self) -> int:
        """For checks: reads that may have been late, and that an answer under way could find."""
        return self._doubts.num_late

    def note_health(self, *, is_well: bool) -> None:
        """What the last look at the server showed."""
        was_open, self._is_open = self._is_open, is_well and not self._is_closed
        if self._is_open and not was_open:
            self._events.on_open()

    def submit(
        self,
        submit: worker_pb2.Submit,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        listener: StreamListener = NOBODY,
    ) -> RequestStream:
        """See WorkerLink."""
        request_id = submit.request_id
        if not self._is_open:
            raise WorkerLost(f"{self._server.name} does not answer; try again")
        if request_id in self._running:
            raise InvalidRequest(
                f"request_id {request_id!r} is in use; choose another", param="request_id"
            )
        stream = RequestStream(
            max_tokens=max_tokens,
            max_prompt_tokens=max_prompt_tokens,
            on_finish=lambda choice: exchange.finish(choice),
            on_close=partial(self._drop, request_id),
            listener=msgspec.structs.replace(
                listener, on_end=lambda error: self._ended(request_id, listener, error)
            ),
            unread=self._unread,
            wakes=self._wakes,
            clock=self._world.clock,
        )
        exchange = self._exchange(submit, stream)
        task = self._background.once(f"vLLM request {request_id}", exchange.run())
        self._running[request_id] = stream, task
        return stream

    async def close(self, reason: str) -> None:
        """See WorkerLink."""
        self._is_closed, self._is_open = True, False
        self._doubts.close()
        for stream, _ in list(self._running.values()):
            stream.fail(WorkerLost(f"{self._server.name} {reason}; try again"))
        await self._background.close()
        self._doubts.end()

    def _exchange(self, submit: worker_pb2.Submit, stream: RequestStream) -> VllmRequest:
        return VllmRequest(
            submit,
            stream,
            ServerPair(self._server, self._servers.first_of(submit.prefill)),
            doubts=self._doubts,
            clock=self._world.clock,
            on_handoff=self._events.on_handoff,
            flush=self._wakes.flush,
        )

    def _drop(self, request_id: str) -> None:
        """Nobody waits for it any more: its connections break, by which vLLM aborts it."""
        if (running := self._running.pop(request_id, None)) is not None:
            running[1].cancel()

    def _ended(
        self, request_id: str, listener: StreamListener, error: SplitserveError | None
    ) -> None:
        """Its id is free again; the rest of its task is a moment's."""
        self._running.pop(request_id, None)
        listener.on_end(error)
