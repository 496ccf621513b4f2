"""W3C Trace Context: what is read of headers, and what goes on to the next process."""

import pytest

from cluster.tracing import context
from cluster.tracing.context import (
    MAX_STATE_MEMBERS,
    TraceContext,
    context_from_wire,
    context_of,
    context_to_wire,
    new_trace,
)
from protos import handoff_pb2

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_is_read_with_its_ids_its_flag_and_its_state() -> None:
    found = context_of([PARENT], ["congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7"])
    assert found is not None
    assert (found.trace_id.hex(), found.span_id.hex()) == (TRACE, SPAN)
    assert found.is_sampled
    assert found.state == "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
    assert found.traceparent == PARENT


def test_of_the_flags_only_the_first_bit_is_looked_at() -> None:
    flags = {"00": False, "01": True, "02": False, "ff": True}
    read = {flag: context_of([f"00-{TRACE}-{SPAN}-{flag}"]) for flag in flags}
    assert {flag: found.is_sampled for flag, found in read.items() if found} == flags


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = context_of([f"cc-{TRACE}-{SPAN}-01-what-the-future-brings"])
    assert found is not None and found.trace_id.hex() == TRACE


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [""],
        ["00"],
        [PARENT, PARENT],
        [f"ff-{TRACE}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}-01-more"],
        [f"00-{TRACE.upper()}-{SPAN}-01"],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE[:-1]}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}-1"],
        [f"00-{TRACE}-{SPAN}-0g"],
        ["00-" + "４" * 32 + f"-{SPAN}-01"],
        [f"{PARENT}\n"],
    ],
)
def test_what_is_malformed_is_as_if_it_had_not_been_said(parents: list[str]) -> None:
    assert context_of(parents, ["a=b"]) is None


@pytest.mark.parametrize(
    "states",
    [
        ["no-value"],
        ["UPPER=1"],
        ["a=1,a=2"],
        ["a=ü"],
        ["a=1\x01"],
        [",".join(f"k{number}=v" for number in range(33))],
        ["a=" + "v" * 256 + ",b=" + "v" * 256],
    ],
)
def test_a_malformed_state_is_left_out_and_its_parent_is_kept(states: list[str]) -> None:
    found = context_of([PARENT], states)
    assert found is not None and found.state == ""


class LongState(str):
    """Headers that nobody splits."""

    def split(self, *_args: object, **_more: object) -> list[str]:
        raise AssertionError("a header of this length was split")


def test_a_state_that_is_far_too_long_is_not_even_split() -> None:
    found = context_of([PARENT], [LongState("a=b," * 8000)])
    assert found is not None and found.state == ""
    assert context_of([PARENT], [LongState("a=b,") for _ in range(8000)]) == found


class CountedPattern:
    """How many members are looked at."""

    def __init__(self) -> None:
        self.num_matches = 0

    def fullmatch(self, member: str) -> str:
        self.num_matches += 1
        return member


@pytest.mark.parametrize("num_members", [MAX_STATE_MEMBERS, MAX_STATE_MEMBERS + 1, 400])
def test_members_are_counted_before_one_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, num_members: int
) -> None:
    looked = CountedPattern()
    monkeypatch.setattr(context, "_STATE_MEMBER", looked)
    context_of([PARENT], [",".join(f"k{number}=" for number in range(num_members))])
    assert looked.num_matches == (num_members if num_members <= MAX_STATE_MEMBERS else 0)


def test_empty_members_of_a_state_are_nothing() -> None:
    found = context_of([PARENT], ["a=1, ,b=2", " "])
    assert found is not None and found.state == "a=1,b=2"


def test_the_next_process_has_the_trace_with_our_span_above_its_own() -> None:
    found = context_of([PARENT], ["a=1"])
    assert found is not None
    told = context_from_wire(context_to_wire(found.under(b"12345678")))
    assert told == TraceContext(found.trace_id, b"12345678", state="a=1")


@pytest.mark.parametrize(
    "message",
    [
        handoff_pb2.TraceParent(),
        handoff_pb2.TraceParent(trace_id=b"1" * 15, span_id=b"1" * 8),
        handoff_pb2.TraceParent(trace_id=b"1" * 16, span_id=b""),
        handoff_pb2.TraceParent(trace_id=b"1" * 16, span_id=b"1" * 8, trace_state="a" * 513),
    ],
)
def test_what_no_process_of_ours_says_is_no_trace(message: handoff_pb2.TraceParent) -> None:
    assert context_from_wire(message) is None


def test_a_trace_that_begins_here_has_nobody_above_it() -> None:
    begun = new_trace(lambda size: bytes(range(size)))
    assert (begun.trace_id, begun.span_id, begun.is_sampled) == (bytes(range(16)), b"", True)
