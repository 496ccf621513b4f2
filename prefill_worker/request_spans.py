"""The spans of a traced prompt at its prefill worker, laid between the stamps of its export.

    prefill worker ---------------------- until all is announced, or the reader has left
      queue - prefill -----------------
                   export ------------- its blocks are announced, chunk by chunk

How long the blocks stay pinned for their reader after that is an attribute.
"""

from __future__ import annotations

from cluster.errors import status_of
from cluster.tracing.part import SpanFacts, TracePart
from cluster.tracing.span import Attribute, SpanKind
from prefill_worker.export_stream import ExportStream
from protos import handoff_pb2


def send_spans(
    part: TracePart, export: ExportStream, request: handoff_pb2.PrefillRequest, now_s: float
) -> None:
    """Of a prompt whose blocks are released now."""
    times, error = export.times, export.error
    words = None if error is None else error.message
    if error is None and not export.is_done:
        words = "its reader has left"
    attributes: dict[str, Attribute] = {
        "splitserve.request.id": request.request_id,
        "gen_ai.usage.input_tokens": len(request.token_ids),
        "splitserve.cached_tokens": export.cached_tokens,
        "splitserve.held_ms": (now_s - times.done_s) * 1000,
    }
    if error is not None:
        attributes["error.type"] = status_of(error).code
    whole = SpanFacts(kind=SpanKind.SERVER, attributes=attributes, error=words)
    part.whole("prefill worker", times.submitted_s, times.done_s, whole)
    if times.began_s is not None:
        part.add("queue", times.submitted_s, times.began_s)
        prefill_ms = None if export.timing is None else export.timing.prefill_ms
        until_s = times.done_s if prefill_ms is None else times.began_s + prefill_ms / 1000
        part.add("prefill", times.began_s, min(until_s, times.done_s))
    if times.announced_s is not None:
        blocks = SpanFacts(attributes={"splitserve.kv.blocks": times.num_blocks})
        part.add("export", times.announced_s, times.done_s, blocks)
    part.send()
