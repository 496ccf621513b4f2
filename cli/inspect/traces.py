"""`trace`: where the time of one request went, or of the slowest."""

from __future__ import annotations

from dataclasses import asdict

from google.protobuf.json_format import MessageToDict

from cli.inspect.waterfall import DrawnSpan, spans_of
from cli.question import ROUTER_TIMEOUT_S, NotFound
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from protos import router_admin_pb2

BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEADING = ("SPAN", "AT MS", "TOOK MS", "", "WHERE", "DETAIL")


async def trace_view(router: OperatorLink, request_id: str) -> View:
    """All that is kept under the client's id. Raises NotFound."""
    asked = router_admin_pb2.TraceRequest(request_id=request_id)
    told = (await router.trace(asked, timeout_s=ROUTER_TIMEOUT_S)).traces
    if not told:
        raise NotFound(
            f"the router knows no request {request_id!r}: it never came this far, or is too long "
            "ago; use the X-Request-Id of its answer"
        )
    return _view(list(told))


async def slowest_view(router: OperatorLink, count: int, since_s: float) -> View:
    """Of those that are over."""
    asked = router_admin_pb2.TraceRequest(slowest=count, since_s=since_s)
    return _view(list((await router.trace(asked, timeout_s=ROUTER_TIMEOUT_S)).traces))


def _view(traces: list[router_admin_pb2.RequestTrace]) -> View:
    return View(
        [_fields(trace) for trace in traces],
        [_sheet(trace) for trace in traces],
        nothing="no request is over yet",
    )


def _fields(trace: router_admin_pb2.RequestTrace) -> dict[str, object]:
    """What the router says, and the spans that are drawn of it."""
    fields: dict[str, object] = MessageToDict(
        trace, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return fields | {"spans": [asdict(span) for span in spans_of(trace)]}


def _sheet(trace: router_admin_pb2.RequestTrace) -> Sheet:
    spans = spans_of(trace)
    axis_ms = _axis_ms(trace, spans[0].took_ms)
    rows = [
        (
            "  " * span.depth + span.name,
            f"{span.start_ms:.1f}",
            f"{span.took_ms:.1f}",
            bar_of(span, axis_ms),
            span.where,
            span.detail,
        )
        for span in spans
    ]
    return Sheet(_HEADING, rows, title=_title(trace, spans[0].took_ms))


def _axis_ms(trace: router_admin_pb2.RequestTrace, whole_ms: float) -> float:
    """What a bar's whole width is: a long answer would leave nothing to be seen of what was before
    its first token."""
    if trace.HasField("first_token_ms"):
        return min(whole_ms, 1.25 * trace.first_token_ms) or 1.0
    return whole_ms or 1.0


def bar_of(span: DrawnSpan, axis_ms: float) -> str:
    """Where it lies within the axis; an arrow at the end: it lasts longer."""
    scale = BAR_CELLS * 8 / axis_ms
    start = min(BAR_CELLS * 8 - 1, int(span.start_ms * scale))
    end = max(start + 1, min(BAR_CELLS * 8, round(span.end_ms * scale)))
    first, last = start // 8, (end - 1) // 8
    cells = [" "] * BAR_CELLS
    for cell in range(first, last + 1):
        cells[cell] = _EIGHTHS[min(8, end - cell * 8)]
    if span.end_ms > 1.001 * axis_ms:
        cells[-1] = "▶"
    return "".join(cells)


def _title(trace: router_admin_pb2.RequestTrace, whole_ms: float) -> str:
    arrival, words = trace.arrival, [trace.request_id]
    words.append(f"class {arrival.priority}")
    if arrival.tenant:
        words.append(f"tenant {arrival.tenant}")
    if trace.prompt_tokens:
        cached = f" ({trace.usage.cached_tokens} cached)" if trace.HasField("usage") else ""
        words.append(f"{trace.prompt_tokens} prompt tokens{cached}")
    if trace.HasField("usage"):
        words.append(f"{trace.usage.completion_tokens} tokens")
    if trace.HasField("first_token_ms"):
        words.append(f"ttft {trace.first_token_ms:.1f} ms")
    state = "so far" if not trace.HasField("ended_ms") else "total"
    words.append(f"{state} {whole_ms:.1f} ms")
    words += [arrival.end] if arrival.end else []
    return "  ".join(words)
