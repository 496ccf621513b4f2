"""A process's tracing, as its options say."""

import pytest
from prometheus_client import CollectorRegistry

from cluster.common_options import TraceOptions
from cluster.errors import ConfigError
from cluster.options import option_specs
from cluster.tracing.context import TraceContext
from cluster.tracing.tracing import Tracing
from cluster.world import World
from tests.otlp_receiver import running_receiver

ENDPOINT = option_specs(TraceOptions)["otlp_endpoint"]


def test_without_a_collector_there_is_none() -> None:
    assert Tracing.of(TraceOptions(), "router", "here", CollectorRegistry(), World()) is None


@pytest.mark.parametrize(
    "address",
    ["collector:4317", "grpc://here:4317", "http://here", "http://here:4318/v1/traces", "http://"],
)
def test_what_is_no_address_of_a_collector_is_refused_with_what_is(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--otlp-endpoint is .*http://HOST:PORT"):
        ENDPOINT.parse(address, source="--otlp-endpoint")


@pytest.mark.parametrize(
    "address", ["http://here:4317", "https://collector.example.com:443/", "http://[::1]:4317"]
)
def test_an_address_has_a_scheme_and_a_port(address: str) -> None:
    assert ENDPOINT.parse(address, source="a flag") == address


async def test_spans_of_a_part_are_read_back_from_a_real_receiver() -> None:
    with running_receiver() as receiver:
        options = TraceOptions(otlp_endpoint=receiver.endpoint)
        tracing = Tracing.of(options, "decode", "decode-0", CollectorRegistry(), World())
        assert tracing is not None
        tracing.start()
        part = tracing.part(TraceContext(b"t" * 16, b"callers!"))
        part.whole("request", 0.0, 1.0)
        part.add("inner", 0.2, 0.8)
        part.send()
        await tracing.close()
    inner, whole = sorted(receiver.spans, key=lambda span: span.name)
    assert inner.span.parent_span_id == whole.span.span_id
    assert whole.span.parent_span_id == b"callers!"
    assert whole.resource["service.name"] == "splitserve-decode"
    assert inner.is_inside(whole)
