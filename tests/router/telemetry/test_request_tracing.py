"""Which requests a router traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cluster.common_options import SamplingOptions
from cluster.tracing.context import TraceContext, context_of
from router.telemetry import request_tracing
from router.telemetry.request_tracing import CHAT, TEXT_COMPLETION, RequestTracing
from tests.kept_spans import KeptSpans

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WANTED = f"00-{TRACE}-00f067aa0ba902b7-01"
UNWANTED = f"00-{TRACE}-00f067aa0ba902b7-00"


def drawing(number: int) -> Callable[[int], bytes]:
    """Trace ids whose random part is that share of all, in hundredths."""
    return lambda size: (((1 << 64) - 1) * number // 100).to_bytes(size)


def traced(rule: SamplingOptions, *parents: str, drawn: int = 0) -> str | None:
    """The id of the trace that a request is part of."""
    tracing = RequestTracing(KeptSpans(), rule, "tiny", draw=drawing(drawn))
    found = tracing.begin(parents, [], CHAT)
    return None if found is None else found.part.trace_id.hex()


def test_as_it_comes_every_request_is_traced_but_those_whose_clients_say_no() -> None:
    rule = SamplingOptions()
    assert traced(rule, drawn=99) == drawing(99)(16).hex()
    assert traced(rule, WANTED) == TRACE
    assert traced(rule, UNWANTED) is None


@pytest.mark.parametrize(("ratio", "drawn"), [(0.0, []), (0.5, [0, 49]), (1.0, [0, 49, 51, 100])])
def test_a_share_of_the_requests_without_a_parent_is_traced(ratio: float, drawn: list[int]) -> None:
    rule = SamplingOptions(trace_ratio=ratio)
    assert [each for each in (0, 49, 51, 100) if traced(rule, drawn=each)] == drawn


def test_as_it_comes_parents_join_and_force_nothing() -> None:
    never, always = (SamplingOptions(trace_ratio=r) for r in (0.0, 1.0))
    assert traced(never, WANTED) is None
    assert traced(always, WANTED) == TRACE
    assert traced(always, UNWANTED) is None


def test_an_id_that_a_client_has_chosen_is_not_what_is_drawn_by() -> None:
    rule = SamplingOptions(trace_ratio=0.5, trace_parent="joins")
    lowest = f"00-{TRACE[:16]}{'0' * 16}-00f067aa0ba902b7-01"
    assert [traced(rule, lowest, drawn=drawn) is not None for drawn in (49, 51)] == [True, False]


def test_where_a_trusted_proxys_parent_decides_it_does_so_whatever_the_share() -> None:
    rule = SamplingOptions(trace_ratio=0.0, trace_parent="decides")
    assert traced(rule, WANTED) == TRACE
    assert traced(rule, UNWANTED) is None


def test_where_parents_are_ignored_a_trace_begins_here() -> None:
    rule = SamplingOptions(trace_parent="ignored")
    assert traced(rule, WANTED) == traced(rule, UNWANTED) == drawing(0)(16).hex()


def test_a_malformed_parent_is_none() -> None:
    assert traced(SamplingOptions(), "00-nonsense") == drawing(0)(16).hex()
    assert traced(SamplingOptions(), WANTED, WANTED) == drawing(0)(16).hex()


def test_headers_are_read_once_for_all_prompts_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    num_read = 0

    def counted(parents: Sequence[str], states: Sequence[str]) -> TraceContext | None:
        nonlocal num_read
        num_read += 1
        return context_of(parents, states)

    monkeypatch.setattr(request_tracing, "context_of", counted)
    tracing = RequestTracing(KeptSpans(), SamplingOptions(), "tiny")
    begun = tracing.begin_each(32, [WANTED], ["a=1"], TEXT_COMPLETION)
    assert [each.part.trace_id.hex() for each in begun if each] == [TRACE] * 32
    assert num_read == 1
    apart = tracing.begin_each(3, [], [], TEXT_COMPLETION)
    assert len({each.part.trace_id for each in apart if each}) == 3
