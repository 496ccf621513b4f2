"""From the pipeline's events to GenerateResponse messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

from cluster.wire import (
    prompt_token_to_wire,
    reason_to_wire,
    timing_to_wire,
    token_to_wire,
    usage_to_wire,
)
from protos import inference_pb2
from router.dispatch.stream import Completed
from router.front.events import ScoredPrompt, TextEvent, in_slices
from router.text.choice import TextDelta


async def responses_of(
    event: TextEvent, request_id: str
) -> AsyncIterator[inference_pb2.GenerateResponse]:
    """One or two messages: a chunk, and the end of its choice."""
    if isinstance(event, Completed):
        yield inference_pb2.GenerateResponse(
            request_id=request_id,
            complete=inference_pb2.Complete(
                usage=usage_to_wire(event.usage), timing=timing_to_wire(event.timing)
            ),
        )
        return
    if isinstance(event, ScoredPrompt):
        scored = inference_pb2.GenerateResponse(
            request_id=request_id, prompt=inference_pb2.ScoredPrompt()
        )
        async for token in in_slices(event.scores):
            scored.prompt.tokens.append(prompt_token_to_wire(token))
        yield scored
        return
    if event.text or event.tokens:
        yield inference_pb2.GenerateResponse(request_id=request_id, chunk=_chunk(event))
    if event.finish_reason is not None:
        end = inference_pb2.ChoiceEnd(
            choice=event.choice, finish_reason=reason_to_wire(event.finish_reason)
        )
        yield inference_pb2.GenerateResponse(request_id=request_id, choice_end=end)


def _chunk(delta: TextDelta) -> inference_pb2.TextChunk:
    """All tokens, also those whose text is not shown: who counts tokens sees every one."""
    return inference_pb2.TextChunk(
        choice=delta.choice,
        text=delta.text,
        tokens=[token_to_wire(shown.token) for shown in delta.tokens],
    )
