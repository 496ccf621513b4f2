"""`get requests` and `describe request`: what a router has taken and not ended."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict

from cli.inspect.workers import field_sheet
from cli.question import ROUTER_TIMEOUT_S, NotFound
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from protos import fleet_watch_pb2, router_admin_pb2

_HEADING = (
    *("REQUEST", "STAGE", "AGE", "CLASS", "TENANT", "WORKERS", "TOKENS", "DEADLINE"),
    *("PROMPT", "OF AT MOST", "SILENT", "LACKED"),
)
_NUM_WIDE = 4


def asked_requests(
    *, tenant: str, stage: str | None, worker: str, older_than_s: float
) -> fleet_watch_pb2.RequestsRequest:
    """What is empty or 0 is not asked for."""
    return fleet_watch_pb2.RequestsRequest(
        tenant=tenant, stage=stage or "", worker_id=worker, older_than_s=older_than_s
    )


async def requests_view(router: OperatorLink, asked: fleet_watch_pb2.RequestsRequest) -> View:
    """A row for each, with a line above that says how many there are."""
    answer = await router.requests(asked, timeout_s=ROUTER_TIMEOUT_S)
    data = {
        "num_in_flight": answer.num_in_flight,
        "has_more": answer.has_more,
        "requests": [_fields(each) for each in answer.requests],
    }
    more = ", and there are more (--limit)" if answer.has_more else ""
    title = f"{answer.num_in_flight} in flight; shown: {len(answer.requests)}{more}"
    rows = [_row(each) for each in answer.requests]
    return View(data, [Sheet(_HEADING, rows, _NUM_WIDE, title)])


async def request_view(router: OperatorLink, request_id: str) -> View:
    """All of one id that are under way, or else those that are over: one that was listed may have
    ended meanwhile. Raises NotFound for an id that the router does not know any more."""
    asked = fleet_watch_pb2.RequestsRequest(request_id=request_id)
    found = (await router.requests(asked, timeout_s=ROUTER_TIMEOUT_S)).requests
    data = [_fields(each) for each in found] or await _over(router, request_id)
    if not data:
        raise NotFound(
            f"no router that was asked knows a request {request_id!r}: it never came this far, or "
            "is too long ago; use an id of `splitserve get requests`, or the X-Request-Id of an "
            "answer"
        )
    return View(data, [field_sheet(each) for each in data])


async def _over(router: OperatorLink, request_id: str) -> list[dict[str, object]]:
    """As `trace` has them, without their spans."""
    asked = router_admin_pb2.TraceRequest(request_id=request_id)
    traces = (await router.trace(asked, timeout_s=ROUTER_TIMEOUT_S)).traces
    return [
        {"request_id": each.request_id, "stage": "over" if each.HasField("ended_ms") else "ending"}
        | {name: value for name, value in _fields(each).items() if name != "legs"}
        for each in traces
    ]


def _fields(request: fleet_watch_pb2.InFlight | router_admin_pb2.RequestTrace) -> dict[str, object]:
    """As in the proto; a deadline that there is not is not told."""
    fields: dict[str, object] = MessageToDict(
        request, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return fields


def _row(request: fleet_watch_pb2.InFlight) -> tuple[str, ...]:
    workers = (request.prefill_worker, request.decode_worker)
    has_deadline = request.HasField("deadline_s")
    return (
        *(request.request_id, request.stage, f"{request.age_s:.1f}s", request.priority),
        *(request.tenant or "-", " -> ".join(filter(None, workers)) or "-"),
        *(str(request.answer_tokens), f"{request.deadline_s:.1f}s" if has_deadline else "-"),
        *(str(request.prompt_tokens), str(request.max_tokens * request.num_choices)),
        *(f"{request.silent_s:.1f}s", request.lacked or "-"),
    )
