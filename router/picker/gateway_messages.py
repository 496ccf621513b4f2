"""What a picker says to a gateway, as messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster.errors import SplitserveError, status_of
from cluster.retry_after import Draw
from protos import ext_proc_pb2 as wire
from router.api.http.errors import error_body, error_headers

ENDPOINT = "x-gateway-destination-endpoint"
"""The header, and the key below the namespace in the metadata (endpoint picker protocol 1.0)."""
ENDPOINT_NAMESPACE = "envoy.lb"
SUBSET = "x-gateway-destination-endpoint-subset"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
PIECE_BYTES = 60 * 1024
"""Of a body that goes back piece by piece: a gateway takes messages of 64 KiB at least."""
GatewayReply = wire.ProcessingResponse


def go_on(message: wire.ProcessingRequest, *, is_echoed: bool) -> GatewayReply:
    """As it came. `is_echoed`: pieces of this body take the place of those that came."""
    match message.WhichOneof("request"):
        case "request_headers":
            return GatewayReply(request_headers=wire.HeadersResponse())
        case "response_headers":
            return GatewayReply(response_headers=wire.HeadersResponse())
        case "request_body":
            return GatewayReply(request_body=_body(message.request_body, is_echoed))
        case "response_body":
            return GatewayReply(response_body=_body(message.response_body, is_echoed))
        case "request_trailers":
            return GatewayReply(request_trailers=wire.TrailersResponse())
        case _:
            return GatewayReply(response_trailers=wire.TrailersResponse())


def picked(
    endpoint: str, headers: Mapping[str, str | None], body: bytes, *, in_pieces: bool, is_end: bool
) -> Iterator[GatewayReply]:
    """The request goes to `endpoint`, with that body; of `headers` those of None are taken away.

    `in_pieces`: the gateway is in full duplex, and has no answer to the head yet; `is_end`: no
    trailers follow.
    """
    common = wire.CommonResponse(
        header_mutation=_mutation(
            {**headers, ENDPOINT: endpoint, "content-length": f"{len(body)}"}
        ),
        clear_route_cache=True,
    )
    if not in_pieces:
        common.body_mutation.body = body
        reply = GatewayReply(request_body=wire.BodyResponse(response=common))
    else:
        reply = GatewayReply(request_headers=wire.HeadersResponse(response=common))
    reply.dynamic_metadata.update({ENDPOINT_NAMESPACE: {ENDPOINT: endpoint}})
    yield reply
    if in_pieces:
        for begin in range(0, len(body), PIECE_BYTES):
            is_last = begin + PIECE_BYTES >= len(body)
            yield _piece(body[begin : begin + PIECE_BYTES], is_end=is_last and is_end)
        if not is_end:
            yield GatewayReply(request_trailers=wire.TrailersResponse())


def refused(error: SplitserveError, request_id: str, draw: Draw) -> GatewayReply:
    """The client's answer, as at the HTTP door."""
    row = status_of(error)
    told = {name.decode(): value.decode() for name, value in error_headers(error, draw)}
    told |= {"content-type": "application/json", "x-request-id": request_id}
    return GatewayReply(
        immediate_response=wire.ImmediateResponse(
            status=wire.HttpStatus(code=row.http),
            headers=_mutation(told),
            body=error_body(error),
            details=row.code,
        )
    )


def told(body: bytes, request_id: str) -> GatewayReply:
    """What the router answers by itself, as JSON."""
    headers = {"content-type": "application/json", "x-request-id": request_id}
    return GatewayReply(
        immediate_response=wire.ImmediateResponse(
            status=wire.HttpStatus(code=200), headers=_mutation(headers), body=body
        )
    )


def subset_of(message: wire.ProcessingRequest) -> frozenset[str] | None:
    """Addresses (ip:port) that the pick is to be of; None: the gateway names none."""
    named = message.metadata_context.filter_metadata.get(SUBSET_NAMESPACE)
    if named is None or SUBSET not in named.fields:
        return None
    value = named.fields[SUBSET]
    if value.WhichOneof("kind") == "list_value":
        words = [item.string_value for item in value.list_value.values]
    else:
        words = value.string_value.split(",")
    return frozenset(word.strip() for word in words if word.strip())


def _body(came: wire.HttpBody, is_echoed: bool) -> wire.BodyResponse:
    if not is_echoed:
        return wire.BodyResponse()
    piece = wire.StreamedBodyResponse(body=came.body, end_of_stream=came.end_of_stream)
    mutation = wire.BodyMutation(streamed_response=piece)
    return wire.BodyResponse(response=wire.CommonResponse(body_mutation=mutation))


def _piece(body: bytes, *, is_end: bool) -> GatewayReply:
    return GatewayReply(request_body=_body(wire.HttpBody(body=body, end_of_stream=is_end), True))


def _mutation(headers: Mapping[str, str | None]) -> wire.HeaderMutation:
    """In place of what is there."""
    set_headers = [
        wire.HeaderValueOption(
            header=wire.HeaderValue(key=name, raw_value=value.encode()),
            append_action=wire.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name, value in headers.items()
        if value is not None
    ]
    removed = [name for name, value in headers.items() if value is None]
    return wire.HeaderMutation(set_headers=set_headers, remove_headers=removed)
