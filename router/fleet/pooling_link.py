"""The router's way to one prefill worker, for prompts that become an embedding or a score: a
WorkerLink whose requests are calls of their own.

    submitted -> answered: what the prompt took, its values, its end
        '- an error, or its consumer has gone: the call ends, and by that the work there

It is open for as long as the worker is a member: whether it answers, each call finds out.
"""

from __future__ import annotations

import asyncio
from functools import partial

from cluster.deadline import Deadline
from cluster.errors import InternalError, InvalidRequest, SplitserveError, WorkerLost
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.process.background import Background, nothing_needed
from cluster.world import World
from protos import generation_pb2, handoff_pb2, worker_pb2
from router.fleet.own_address import own_address
from router.fleet.request_stream import NOBODY, RequestStream, StreamListener
from router.fleet.unread import UnreadBytes

FLOAT_BYTES = 4
MAX_VALUES = 65_536
"""Of an embedding: as wide as any model is."""
_log = get_logger("pooling_link")


class PoolingLink:
    """See WorkerLink. One per process that has joined."""

    def __init__(self, member: Member, world: World, unread: UnreadBytes) -> None:
        self._key = member.key
        self._world = world
        self._unread = unread
        self._link = world.dialer.pooling(own_address(member))
        self._is_closed = False
        self._running: dict[str, tuple[RequestStream, asyncio.Task[None]]] = {}
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)

    @property
    def is_open(self) -> bool:
        """See WorkerLink."""
        return not self._is_closed

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
        if self._is_closed:
            raise WorkerLost(f"prefill worker {self._key.worker_id} left; try again")
        if request_id in self._running:
            raise InvalidRequest(
                f"request_id {request_id!r} is in use; choose another", param="request_id"
            )
        stream = RequestStream(
            max_tokens=max_tokens,
            max_prompt_tokens=max_prompt_tokens,
            has_logprobs=False,
            on_finish=lambda choice: None,
            on_close=partial(self._drop, request_id),
            listener=listener,
            unread=self._unread,
            clock=self._world.clock,
        )
        task = self._background.once(f"pooled prompt {request_id}", self._ask(submit, stream))
        self._running[request_id] = stream, task
        return stream

    async def close(self, reason: str) -> None:
        """See WorkerLink."""
        self._is_closed = True
        for stream, _ in list(self._running.values()):
            stream.fail(WorkerLost(f"prefill worker {self._key.worker_id} {reason}; try again"))
        await self._background.close()
        await self._link.close()

    async def _ask(self, submit: worker_pb2.Submit, stream: RequestStream) -> None:
        deadline = Deadline.after(submit.timeout_ms / 1000, self._world.clock)
        try:
            answer = await self._link.pool(self._request(submit), deadline)
            _check(answer)
        except SplitserveError as error:
            self._running.pop(submit.request_id, None)
            stream.fail(error)
        except Exception:
            _log.exception("an answer of a prefill worker could not be read; its request ends")
            self._running.pop(submit.request_id, None)
            stream.fail(InternalError("the router could not read what a prefill worker answered"))
        else:
            self._running.pop(submit.request_id, None)
            self._tell(submit, answer, stream)

    def _request(self, submit: worker_pb2.Submit) -> handoff_pb2.PoolRequest:
        wish = submit.pool
        return handoff_pb2.PoolRequest(
            request_id=submit.request_id,
            incarnation=self._key.incarnation,
            pooling=wish.pooling,
            token_ids=submit.token_ids,
            cache_root=submit.cache_root,
            dimensions=wish.dimensions if wish.HasField("dimensions") else None,
            asked_s=submit.asked_s if submit.HasField("asked_s") else None,
            trace=submit.trace if submit.HasField("trace") else None,
            adapter=submit.adapter,
            owner=submit.owner,
        )

    def _tell(
        self,
        submit: worker_pb2.Submit,
        answer: handoff_pb2.PoolResponse,
        stream: RequestStream,
    ) -> None:
        """As a session's frames would."""
        timing = generation_pb2.Timing(
            queue_ms=answer.queue_ms,
            prefill_ms=answer.prefill_ms,
            prefill_worker=self._key.worker_id,
        )
        num_prompt = len(submit.token_ids)
        cached_tokens = min(answer.cached_tokens, num_prompt)
        usage = generation_pb2.Usage(prompt_tokens=num_prompt, cached_tokens=cached_tokens)
        stream.add_computed(
            worker_pb2.PromptComputed(
                request_id=submit.request_id, cached_tokens=cached_tokens, timing=timing
            )
        )
        stream.add_pooled(answer.values)
        stream.end(worker_pb2.Ended(request_id=submit.request_id, usage=usage, timing=timing))

    def _drop(self, request_id: str) -> None:
        """Nobody waits for it any more: the call ends, and the worker stops."""
        if (running := self._running.pop(request_id, None)) is not None:
            running[1].cancel()


def _check(answer: handoff_pb2.PoolResponse) -> None:
    """Raises InternalError for what is no row of numbers."""
    num_values, rest = divmod(len(answer.values), FLOAT_BYTES)
    if rest or not 1 <= num_values <= MAX_VALUES:
        raise InternalError(f"a prefill worker sent {len(answer.values)} bytes for an embedding")
