"""Refusals of translated doors name what their clients send, and leave clients' own words alone."""

from __future__ import annotations

import pytest

from cluster.errors import InvalidRequest
from router.api.reading.messages_reader import MessagesReader
from router.api.reading.responses_reader import ResponsesReader
from router.api.reading.translated_reader import TranslatedReader

RENAMED = [
    (ResponsesReader, "max_tokens is 0; allowed: 1 or more", "max_output_tokens is 0; allowed: 1"),
    (ResponsesReader, "tools[1].function.name is missing", "tools[1].name is missing"),
    (ResponsesReader, "response_format.json_schema: no", "text.format: no"),
    (MessagesReader, "messages[1].tool_call_id is missing", "messages[].content[].tool_use_id is"),
    (MessagesReader, "tools[0].function.parameters: no", "tools[0].input_schema: no"),
]
OWN = [
    (ResponsesReader, "tools[1].name is 'max_tokens' a second time"),
    (ResponsesReader, "`not` at #/properties/max_tokens is not supported"),
    (ResponsesReader, 'the property "reasoning_effort" is required, but no property'),
    (ResponsesReader, "tool_choice names 'response_format', which is not among the tools"),
    (ResponsesReader, "`max_tokens` is no keyword"),
    (MessagesReader, "`not` at #/properties/chat_template_kwargs/x is not supported"),
]


@pytest.mark.parametrize(("door", "said", "begins"), RENAMED)
def test_fields_of_a_chat_are_called_what_they_are_at_the_door(
    door: type[TranslatedReader], said: str, begins: str
) -> None:
    with pytest.raises(InvalidRequest) as refused, door.names.told():
        raise InvalidRequest(said, param=said.split(" ")[0].rstrip(":"))
    assert refused.value.message.startswith(begins)
    assert refused.value.param == begins.split(" ")[0].rstrip(":")


@pytest.mark.parametrize(("door", "said"), OWN)
def test_what_a_client_has_named_itself_stays(door: type[TranslatedReader], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused, door.names.told():
        raise InvalidRequest(said)
    assert refused.value.message == said
