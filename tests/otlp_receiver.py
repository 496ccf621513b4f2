"""A collector: OTLP over gRPC, with the messages of its protocol, in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def value_of(value: Any) -> Any:
    """Of an AnyValue."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind)


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """One that was exported, and by whom."""

    span: Span
    resource: dict[str, Any]

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def service(self) -> str:
        return str(self.resource["service.name"])

    @property
    def attributes(self) -> dict[str, Any]:
        return {each.key: value_of(each.value) for each in self.span.attributes}

    @property
    def has_failed(self) -> bool:
        return self.span.status.code == Status.STATUS_CODE_ERROR

    def is_inside(self, other: ReadSpan, slack_ns: int = 0) -> bool:
        return (
            other.span.start_time_unix_nano - slack_ns <= self.span.start_time_unix_nano
            and self.span.end_time_unix_nano <= other.span.end_time_unix_nano + slack_ns
        )


@dataclass
class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps all that comes."""

    port: int = 0
    spans: list[ReadSpan] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    """Of the calls."""
    refuses_with: grpc.StatusCode | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(self, request: Any, context: Any) -> Any:
        if self.refuses_with is not None:
            context.abort(self.refuses_with, "the test says so")
        with self._lock:
            self.metadata.append(dict(context.invocation_metadata()))
            for group in request.resource_spans:
                resource = {each.key: value_of(each.value) for each in group.resource.attributes}
                found = [span for scope in group.scope_spans for span in scope.spans]
                self.spans += [ReadSpan(span, resource) for span in found]
        return trace_service_pb2.ExportTraceServiceResponse()

    def of_trace(self, trace_id: str) -> list[ReadSpan]:
        """By their start."""
        found = [each for each in self.spans if each.span.trace_id.hex() == trace_id]
        return sorted(found, key=lambda each: each.span.start_time_unix_nano)


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """On a free port of this machine."""
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    receiver.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
