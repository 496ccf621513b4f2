"""Whatever JSON comes, reading it gives a plan or an InvalidRequest, never another exception."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import InvalidRequest
from router.api.reading.chat_reader import ChatReader
from router.api.reading.completion_reader import CompletionReader
from router.api.reading.plan import BodyReader, Plan
from router.api.reading.schema import ChatRequest, CompletionRequest
from tests.router.front_fakes import byte_model

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=True, allow_infinity=True), st.booleans()
)
SCALARS = st.one_of(st.none(), NUMBERS, st.text(max_size=5))
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["role", "content", "type", "text", "x", "1"]), inner),
    ),
    max_leaves=6,
)
CHAT_FIELDS = st.sampled_from(ChatRequest.__struct_fields__)
COMPLETION_FIELDS = st.sampled_from(CompletionRequest.__struct_fields__)
CHAT, COMPLETION = ChatReader(byte_model()), CompletionReader(byte_model())


def read(reader: BodyReader, body: bytes) -> Plan | InvalidRequest:
    try:
        return reader.read(body)
    except InvalidRequest as error:
        assert error.message
        return error


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(CHAT_FIELDS, ANYTHING, max_size=4))
def test_any_chat_fields_are_read_or_refused(fields: dict[str, Any]) -> None:
    good = {"messages": [{"role": "user", "content": "Hi"}]}
    read(CHAT, json.dumps({**good, **fields}).encode())


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(COMPLETION_FIELDS, ANYTHING, max_size=4))
def test_any_completion_fields_are_read_or_refused(fields: dict[str, Any]) -> None:
    read(COMPLETION, json.dumps({"prompt": "Hi", **fields}).encode())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 40))
def test_bytes_in_the_middle_of_a_good_body_are_read_or_refused(noise: bytes, at: int) -> None:
    body = b'{"prompt": "Hi", "temperature": 0.5, "n": 2}'
    read(COMPLETION, body[:at] + noise + body[at:])


def test_a_hopelessly_long_list_of_ids_is_refused_by_its_length_alone() -> None:
    body = b'{"prompt": [' + b",".join([b"1"] * 200_000) + b"]}"
    error = read(COMPLETION, body)
    assert isinstance(error, InvalidRequest)
    assert "200000 tokens" in error.message and "512" in error.message
