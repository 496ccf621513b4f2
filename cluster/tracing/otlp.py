"""OTLP over gRPC, by OpenTelemetry's own exporter: the one module that imports OpenTelemetry.

What its standard variables say holds here too: OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE,
_CLIENT_CERTIFICATE, _CLIENT_KEY, _COMPRESSION and _TIMEOUT, and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.grpc import exporter as grpc_exporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from cluster import VERSION
from cluster.errors import ConfigError
from cluster.tracing import span as ours
from cluster.tracing.export import CollectorAway

_KINDS = {
    ours.SpanKind.INTERNAL: SpanKind.INTERNAL,
    ours.SpanKind.SERVER: SpanKind.SERVER,
    ours.SpanKind.CLIENT: SpanKind.CLIENT,
}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpWriter:
    """A SpanWriter; see there."""

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        """`resource`: which process this is. Raises ConfigError for variables that are of no
        use."""
        self._last_words = _LastWords()
        self._resource = Resource.create(dict(resource))
        self._scope = InstrumentationScope("splitserve", VERSION)
        try:
            self._exporter = OTLPSpanExporter(
                endpoint=endpoint, insecure=endpoint.startswith("http://")
            )
        except Exception as cause:
            raise ConfigError(
                f"traces cannot be exported to {endpoint} as the OTEL_EXPORTER_OTLP_ variables "
                f"say: {cause}",
                param="otlp_endpoint",
            ) from cause

    def write(self, spans: Sequence[ours.FinishedSpan]) -> None:
        """See SpanWriter; what fails for a moment is tried again, for 10 s in all."""
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            raise CollectorAway(self._last_words.text or "it gives no answer")

    def close(self) -> None:
        """See SpanWriter."""
        self._exporter.shutdown()
        self._last_words.close()

    def _readable(self, span: ours.FinishedSpan) -> ReadableSpan:
        state = TraceState.from_header([span.state]) if span.state else None
        parent = _context(span.trace_id, span.parent_id, state) if span.parent_id else None
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id, state),
            parent=parent,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=_KINDS[span.kind],
            status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: bytes, span_id: bytes, state: TraceState | None) -> SpanContext:
    return SpanContext(int.from_bytes(trace_id), int.from_bytes(span_id), False, _SAMPLED, state)


class _LastWords(logging.Handler):
    """Why the exporter gave up: it says so in its log alone, which is kept from ours, and there
    once a minute but for a filter that is taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        logger = grpc_exporter.logger
        logger.addHandler(self)
        logger.propagate = False
        for each in list(logger.filters):
            logger.removeFilter(each)

    def close(self) -> None:
        """See Handler."""
        grpc_exporter.logger.removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self.text = record.getMessage()
