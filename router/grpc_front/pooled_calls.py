"""Embed and Score of the gRPC service, over the same pipeline as HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from cluster.errors import RequestTooLarge, SplitserveError
from cluster.logs import bind_request, get_logger
from cluster.rpc import abort
from protos import generation_pb2, inference_pb2
from router.dispatch.stream import Newcomer
from router.dispatch.time_limits import TimeLimits
from router.front.caller import Caller, caller_of
from router.front.doors import DoorContext
from router.front.pairs import num_chars_of_all
from router.front.pooled_prompts import PooledPrompts, PooledRequest, PooledValues
from router.front.pooled_rest import PooledRest, rest_of
from router.front.pooled_scores import numbers_of, scores_of
from router.front.refusals import internal_error
from router.front.text_work import LARGE_BODY_BYTES, Door, ReadBody, SplitBody
from router.grpc_front.message_intake import ReceivedMessage
from router.grpc_front.pooled_reading import split_embed, split_score
from router.telemetry.request_ids import RequestIds, request_ids

_SPLITS = {Door.GRPC_EMBED: split_embed, Door.GRPC_SCORE: split_score}
_Answer = inference_pb2.EmbedResponse | inference_pb2.ScoreResponse
_Tell = Callable[[str, PooledRest, Sequence[PooledValues]], Awaitable[_Answer]]
_log = get_logger("router.grpc")


class PooledCalls:
    """Messages come as they are: what is large is not parsed on this loop."""

    def __init__(self, door: DoorContext) -> None:
        self._door = door
        self._prompts = PooledPrompts(door.model, door.pipeline)

    async def Embed(self, received: ReceivedMessage, context: Any) -> _Answer:
        """An EmbedRequest; a client that leaves ends it."""
        return await self._answered(Door.GRPC_EMBED, received, context, self._embeddings)

    async def Score(self, received: ReceivedMessage, context: Any) -> _Answer:
        """A ScoreRequest; likewise."""
        return await self._answered(Door.GRPC_SCORE, received, context, self._scores)

    async def _answered(
        self, kind: Door, received: ReceivedMessage, context: Any, tell: _Tell
    ) -> _Answer:
        try:
            with self._door.in_flight.admit():
                return await self._answer(kind, received, context, tell)
        except SplitserveError as error:
            await abort(context, error, self._door.chance.random)
        except Exception:
            _log.exception("a call failed inside the router; its client gets internal_error")
            await abort(context, internal_error())

    async def _answer(
        self, kind: Door, received: ReceivedMessage, context: Any, tell: _Tell
    ) -> _Answer:
        limits, caller = received.limits, caller_of(context.peer())
        self._check_room(received)
        read = await self._read(kind, received.take(), caller, limits)
        rest = rest_of(read.rest)
        ids: RequestIds = request_ids(rest.request_id or None, self._door.draw)
        with bind_request(ids.internal):
            request = PooledRequest(
                request_id=ids.internal,
                prompts=read.prompts,
                param=kind.inputs,
                limits=limits,
                tenant=received.tenant,
                caller=caller,
                dimensions=rest.dimensions,
                cache_salt=rest.cache_salt,
                adapter=rest.adapter,
                traces=self._traces(kind, len(read.prompts), context),
            )
            prepared = await self._prompts.prepare(request)
            return await tell(ids.echoed, rest, await self._prompts.pooled(prepared))

    def _check_room(self, received: ReceivedMessage) -> None:
        """Before anything of it is read, its own id included."""
        request_id = request_ids(None, self._door.draw).internal
        newcomer = Newcomer(request_id, received.tenant, received.limits, is_pooled=True)
        self._door.pipeline.check_room(newcomer)

    async def _read(
        self, kind: Door, raw: bytes, caller: Caller, limits: TimeLimits
    ) -> SplitBody | ReadBody:
        limit = self._door.door_limits.max_body_bytes
        if len(raw) > limit:
            raise RequestTooLarge(f"the message has more than {limit} bytes; shorten the request")
        if len(raw) <= LARGE_BODY_BYTES:
            await self._door.share.breathe()
            split = _SPLITS[kind](self._door.model, raw)
            if num_chars_of_all(split.prompts) <= LARGE_BODY_BYTES:
                return split
        with self._door.bodies.open(lambda: caller) as held:
            held.grow_to(len(raw))
            until = limits.to_first_token
            return await self._door.pipeline.read_large(kind, raw, until, caller)

    def _traces(self, kind: Door, num_prompts: int, context: Any) -> list[Any]:
        if self._door.tracing is None:
            return []
        said = [item for item in context.invocation_metadata() if isinstance(item[1], str)]
        parents, states = (
            [value for name, value in said if name == wanted]
            for wanted in ("traceparent", "tracestate")
        )
        return self._door.tracing.begin_each(num_prompts, parents, states, kind.operation)

    async def _embeddings(
        self, request_id: str, rest: PooledRest, pooled: Sequence[PooledValues]
    ) -> _Answer:
        answer = inference_pb2.EmbedResponse(request_id=request_id, usage=_usage(pooled))
        for each in pooled:
            answer.embeddings.add().values.extend(numbers_of(each.values))
            await self._door.share.breathe()
        return answer

    async def _scores(
        self, request_id: str, rest: PooledRest, pooled: Sequence[PooledValues]
    ) -> _Answer:
        scores = await scores_of(rest, pooled, self._door.share)
        return inference_pb2.ScoreResponse(
            request_id=request_id, scores=scores, usage=_usage(pooled)
        )


def pooled_methods(calls: PooledCalls) -> dict[str, Any]:
    """Their handlers, by name."""
    return {
        "Embed": grpc.unary_unary_rpc_method_handler(
            calls.Embed, response_serializer=inference_pb2.EmbedResponse.SerializeToString
        ),
        "Score": grpc.unary_unary_rpc_method_handler(
            calls.Score, response_serializer=inference_pb2.ScoreResponse.SerializeToString
        ),
    }


def _usage(pooled: Sequence[PooledValues]) -> generation_pb2.Usage:
    return generation_pb2.Usage(
        prompt_tokens=sum(each.usage.prompt_tokens for each in pooled),
        cached_tokens=sum(each.usage.cached_tokens for each in pooled),
    )
