"""Calls that another one may go on with: as streams over HTTP are, with the same ids of events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec

from cluster.errors import InvalidRequest
from protos import inference_pb2
from router.front.events import TextEvent
from router.front.prepared_generation import PreparedGeneration
from router.front.resumption import Resumable, Resumption
from router.front.text_work import Door
from router.grpc_front.event_messages import responses_of
from router.tenants.tenant import Tenant
from router.text.choice import TextDelta

DOOR = Door.GRPC.value


def resumable_call(
    message: inference_pb2.GenerateRequest,
    prepared: PreparedGeneration,
    tenant: Tenant,
    resumption: Resumption | None,
) -> Resumable | None:
    """None: nobody asked for it, or this router keeps nothing. Raises InvalidRequest."""
    if not message.resumable:
        return None
    if prepared.routed.sampling.prompt_logprobs is not None:
        raise InvalidRequest(
            "resumable does not go with prompt_logprobs; leave out one of them", param="resumable"
        )
    if prepared.routed.sampling.beams is not None or prepared.num_best is not None:
        raise InvalidRequest(
            "resumable does not go with beams or best_of: nothing of them is told before their end",
            param="resumable",
        )
    if resumption is None:
        return None
    return resumption.begin(prepared, tenant, door=DOOR, told_as=b"")


async def rest_of(
    event: TextEvent, resumable: Resumable, request_id: str
) -> AsyncIterator[inference_pb2.GenerateResponse]:
    """What the client lacks of it; each message has the id that it is to send for what follows."""
    for part in _parts(event):
        rest = resumable.place.rest_of(part) if isinstance(part, TextDelta) else part
        if rest is not None:
            async for response in responses_of(rest, request_id):
                response.event_id = resumable.event_id or ""
                yield response


def _parts(event: TextEvent) -> Iterator[TextEvent]:
    """One for each message: a client may have the text of a choice without its end."""
    if isinstance(event, TextDelta) and event.finish_reason and (event.text or event.tokens):
        yield msgspec.structs.replace(event, finish_reason=None)
        yield msgspec.structs.replace(event, text="", tokens=())
    else:
        yield event
