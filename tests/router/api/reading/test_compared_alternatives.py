"""A form and the tools beside it have one budget of comparisons."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.errors import InvalidRequest
from router.api.reading.chat_reader import ChatReader
from tests.router.front_fakes import tool_model

COSTLY = {"oneOf": [{"enum": [0] * 6000}, {"enum": [1] * 6000}]}
SCHEMA = {"type": "object", "properties": {"a": COSTLY}}
TOOLS: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "tool_choice": "required",
}
FORMS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {
        "structured_outputs": {
            "structural_tag": {
                "structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}],
                "triggers": ["<a>"],
            }
        }
    },
    {"structured_outputs": {"grammar": f"start: %json {msgspec.json.encode(SCHEMA).decode()}"}},
]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_and_tools_that_each_may_be_are_refused_where_they_cost_too_much_together(
    form: dict[str, Any],
) -> None:
    reader = ChatReader(tool_model("hermes"))
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    for alone in (form, TOOLS):
        reader.read(msgspec.json.encode(chat | alone))
    both = msgspec.json.encode(chat | form | TOOLS)
    for read in (reader.read, reader.split):
        with pytest.raises(InvalidRequest, match="comparisons of .*, with those before it"):
            read(both)
