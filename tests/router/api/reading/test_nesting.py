"""Arguments of earlier calls, nested as deep as a decoder lets them be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.errors import InvalidRequest
from router.api.reading.chat_messages import MAX_ARGUMENTS_DEPTH
from router.api.reading.chat_reader import ChatReader
from router.api.reading.messages_reader import MessagesReader
from router.api.reading.plan import BodyReader
from router.api.reading.responses_reader import ResponsesReader
from tests.router.front_fakes import tool_model

USER = b'{"role":"user","content":"Hi"}'


def nested(depth: int) -> bytes:
    """An object; `depth` of objects and lists."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def chat(arguments: bytes) -> bytes:
    text = msgspec.json.encode(arguments.decode())
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":' + text + b"}}"
    said = b'{"role":"assistant","tool_calls":[' + call + b"]}"
    told = b'{"role":"tool","tool_call_id":"c","content":"x"}'
    return b'{"messages":[' + b",".join([USER, said, told]) + b"]}"


def messages(arguments: bytes) -> bytes:
    call = b'{"type":"tool_use","id":"c","name":"f","input":' + arguments + b"}"
    said = b'{"role":"assistant","content":[' + call + b"]}"
    told = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}'
    return b'{"max_tokens":5,"messages":[' + b",".join([USER, said, told]) + b"]}"


def responses(arguments: bytes) -> bytes:
    text = msgspec.json.encode(arguments.decode())
    call = b'{"type":"function_call","call_id":"c","name":"f","arguments":' + text + b"}"
    told = b'{"type":"function_call_output","call_id":"c","output":"x"}'
    return b'{"input":[' + b",".join([USER, call, told]) + b"]}"


READERS: list[tuple[Any, Any]] = [
    (ChatReader, chat),
    (MessagesReader, messages),
    (ResponsesReader, responses),
]


@pytest.mark.parametrize(("reader", "body"), READERS)
def test_arguments_that_are_nested_too_deep_are_refused_by_their_place(
    reader: Any, body: Any
) -> None:
    made: BodyReader = reader(tool_model())
    assert made.read(body(nested(MAX_ARGUMENTS_DEPTH)))
    for depth in (MAX_ARGUMENTS_DEPTH + 1, 900, 960, *range(980, 1010), 5000):
        with pytest.raises(InvalidRequest):
            made.read(body(nested(depth)))
    with pytest.raises(InvalidRequest, match=f"nested deeper than {MAX_ARGUMENTS_DEPTH}"):
        made.read(body(nested(MAX_ARGUMENTS_DEPTH + 1)))
