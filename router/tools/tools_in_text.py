"""Tools for a model whose chat template does not take them: in a text.

    tools                      -> a text of ours, at the end of the system message

What else there is of them stays the template's, where it writes calls (DeepSeek's). Else calls are
of Hermes's form, and in texts too:

    tool_calls of an answer    -> the words that the model is asked to write
    messages of the role tool  -> a part of the next message of the user

A chat without any of it is the template's alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.errors import InvalidRequest
from router.text.tokenizer import ChatTemplate
from router.tools.family_words import TOOL_CALL, TOOL_CALL_END

_LISTED = """\
You may call functions. Each line between <tools> and </tools> describes one of them as JSON.
<tools>
{tools}
</tools>
"""
TOLD = (
    _LISTED
    + """\
To call a function, write its name and arguments as a JSON object in <tool_call> tags, like this:
<tool_call>
{{"name": "a name from above", "arguments": {{"a parameter": "its value"}}}}
</tool_call>
Use such tags once for each call. What a call gave is then told in <tool_response> tags."""
)
TOLD_BY_EXAMPLE = (
    _LISTED
    + """\
To call a function, write its name, and its arguments as a JSON object, in this form and no other:
{example}
Write nothing after that: what the call gave is told to you then."""
)
CALL = f"{TOOL_CALL}\n{{call}}\n{TOOL_CALL_END}"
RESULT = "<tool_response>\n{content}\n</tool_response>"
_BESIDE = frozenset({"tool_calls", "tool_call_id", "name"})
_PROBE = "a word of the system"
_Message = dict[str, Any]


class ToolsInText:
    """A ChatTemplate around one that does not take `tools`."""

    def __init__(self, template: ChatTemplate, example: str | None = None) -> None:
        """`example`: a call as the template itself writes it; None: it writes none."""
        self._template = template
        self._example = example
        self.takes = template.takes | {"tools"}
        self._takes_system = _takes_system(template)

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        """See ChatTemplate."""
        return self._template.is_short(messages)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """See ChatTemplate."""
        if tools or any(_has_tools(message) for message in messages):
            told = in_texts(messages) if self._example is None else list(map(dict, messages))
            if tools:
                self._tell(told, self._text_of(tools))
            messages = told
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, variables=variables
        )

    def _text_of(self, tools: Sequence[Mapping[str, Any]]) -> str:
        listed = "\n".join(map(_json, tools))
        if self._example is None:
            return TOLD.format(tools=listed)
        return TOLD_BY_EXAMPLE.format(tools=listed, example=self._example)

    def _tell(self, messages: list[_Message], text: str) -> None:
        """The first of the role that hears it begins with it, or ends with it."""
        role = "system" if self._takes_system else "user"
        first = messages[0] if self._takes_system else _first_of(messages, role)
        if first is None or first["role"] != role:
            messages.insert(0, {"role": role, "content": text})
        elif self._takes_system:
            first["content"] = f"{first['content']}\n\n{text}"
        else:
            first["content"] = f"{text}\n\n{first['content']}"


def in_texts(messages: Sequence[Mapping[str, Any]]) -> list[_Message]:
    """The same chat of texts alone. What came of calls is a message of the user, and what the user
    says after it is a part of that: templates want turns."""
    told: list[_Message] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(RESULT.format(content=message["content"]))
            continue
        mine = {key: value for key, value in message.items() if key not in _BESIDE}
        if message.get("tool_calls"):
            mine["content"] = "\n".join(_called(message))
        if results and mine["role"] == "user":
            mine["content"] = "\n".join([*results, mine["content"]])
        elif results:
            told.append({"role": "user", "content": "\n".join(results)})
        results = []
        told.append(mine)
    if results:
        told.append({"role": "user", "content": "\n".join(results)})
    return told


def _called(message: Mapping[str, Any]) -> list[str]:
    """What the model has written: its text, and its calls."""
    said = [message["content"]] if message["content"] else []
    calls = [call["function"] for call in message["tool_calls"]]
    return [*said, *(CALL.format(call=_json(_named(each))) for each in calls)]


def _named(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}


def _has_tools(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or "tool_calls" in message


def _first_of(messages: Sequence[_Message], role: str) -> _Message | None:
    return next((message for message in messages if message["role"] == role), None)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _takes_system(template: ChatTemplate) -> bool:
    """It writes what a system message says."""
    chat = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hi"}]
    try:
        return _PROBE in template.render(chat)
    except InvalidRequest:
        return False
