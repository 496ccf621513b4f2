"""What a real receiver of OTLP gets, and what is said when there is none."""

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from cluster.errors import ConfigError
from cluster.tracing.export import CollectorAway
from cluster.tracing.otlp import OtlpWriter
from cluster.tracing.span import FinishedSpan, SpanKind
from tests.free_ports import free_port
from tests.otlp_receiver import running_receiver

RESOURCE = {"service.name": "splitserve-router", "service.instance.id": "here:8000"}
SPAN = FinishedSpan(
    trace_id=bytes(range(16)),
    span_id=bytes(range(8, 16)),
    parent_id=bytes(range(1, 9)),
    state="a=1,b=2",
    name="attempt",
    kind=SpanKind.CLIENT,
    start_ns=1_700_000_000_000_000_001,
    end_ns=1_700_000_000_000_000_009,
    attributes={"text": "x", "number": 3, "share": 0.5, "is": True, "several": ("a", "b")},
    error="it was lost",
)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    for name in ("HEADERS", "COMPRESSION", "TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=router-0,service.name=other")


def test_a_span_comes_over_with_all_that_it_has():
    with running_receiver() as receiver:
        writer = OtlpWriter(receiver.endpoint, RESOURCE)
        writer.write([SPAN])
        writer.close()
    (got,) = receiver.spans
    assert got.span.trace_id == SPAN.trace_id and got.span.span_id == SPAN.span_id
    assert got.span.parent_span_id == SPAN.parent_id and got.span.trace_state == "a=1,b=2"
    assert (got.name, got.span.kind) == ("attempt", Span.SPAN_KIND_CLIENT)
    assert got.span.start_time_unix_nano == SPAN.start_ns
    assert got.span.end_time_unix_nano == SPAN.end_ns
    assert got.attributes == {**SPAN.attributes, "several": ["a", "b"]}
    assert got.has_failed and got.span.status.message == "it was lost"


def test_a_process_says_which_it_is_and_the_platform_where():
    with running_receiver() as receiver:
        writer = OtlpWriter(receiver.endpoint, RESOURCE)
        writer.write([SPAN])
        writer.close()
    resource = receiver.spans[0].resource
    assert resource.items() >= RESOURCE.items()
    assert resource["k8s.pod.name"] == "router-0"


def test_headers_of_the_standard_variable_go_along(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=secret")
    with running_receiver() as receiver:
        writer = OtlpWriter(receiver.endpoint, RESOURCE)
        writer.write([SPAN])
        writer.close()
    assert receiver.metadata[0]["x-api-key"] == "secret"


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """On stderr, by others than gRPC's own core, which tells of connections that are broken off."""
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if "chttp2_transport" not in line]


def test_a_collector_that_refuses_is_quoted(capfd):
    with running_receiver() as receiver:
        receiver.refuses_with = grpc.StatusCode.UNAUTHENTICATED
        writer = OtlpWriter(receiver.endpoint, RESOURCE)
        with pytest.raises(CollectorAway, match=r"UNAUTHENTICATED.*the test says so"):
            writer.write([SPAN])
        writer.close()
    assert not said(capfd)


def test_a_collector_that_is_not_there_is_away_within_the_time_limit(monkeypatch, capfd):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    writer = OtlpWriter(f"http://127.0.0.1:{free_port()}", RESOURCE)
    with pytest.raises(CollectorAway, match=r"UNAVAILABLE|DEADLINE_EXCEEDED"):
        writer.write([SPAN])
    writer.close()
    assert capfd.readouterr().err == ""


def test_a_variable_that_is_of_no_use_is_an_error_at_the_start(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    with pytest.raises(ConfigError, match="zip"):
        OtlpWriter("http://127.0.0.1:4317", RESOURCE)
