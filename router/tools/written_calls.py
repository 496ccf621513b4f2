"""How a chat template writes the calls of earlier answers: found out when it is loaded, by
rendering a chat that has some.

Templates want the arguments as an object, or as JSON in a text where they put texts together; some
take one call of an answer and no more; and some write calls though they do not know `tools`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.text.tokenizer import ChatTemplate
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.formats import ToolFormat
from router.tools.parts import CallArguments, CallBegun, CallEnded
from router.tools.told_otherwise import ToldOtherwise

NAME, KEY = "name_of_the_function", "parameter"
_VALUES = ("its value", "another value")
_RESULTS = ("what the call gave", "what the other gave")
_SAID, _SAID_THEN = "what was said before", "what was said then"
_Message = dict[str, Any]


class WrittenCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Of one template."""

    sample: str
    """A chat with one call."""
    takes_text: bool
    """Arguments have to be a text."""
    is_silent: bool
    """An answer of calls alone has no content, rather than an empty one."""
    only_one: bool = False
    """An answer's second call is refused, or left out."""

    def example(self, tools: ToolFormat) -> str | None:
        """One call, as the template writes it; None: that family's reader does not read it."""
        start = self.sample.find(tools.trigger)
        ends = [self.sample.rfind(word) + len(word) for word in tools.inner if word in self.sample]
        text = self.sample[start : max(ends, default=0)] if start >= 0 else ""
        parts = AnswerParser(Parsing(tools=tools, names={NAME})).finish(text)
        if [type(part) for part in parts] != [CallBegun, CallArguments, CallEnded]:
            return None
        return text


def written_calls(template: ChatTemplate) -> WrittenCalls | None:
    """None: it writes no calls, in whatever form they are given to it."""
    for takes_text, is_silent in ((False, False), (True, True), (True, False)):
        asked = taking_text(template, is_silent=is_silent) if takes_text else template
        sample = _rendered(asked, 1)
        if sample is not None:
            return WrittenCalls(
                sample=sample,
                takes_text=takes_text,
                is_silent=is_silent,
                only_one=not takes_calls(asked, 2),
            )
    return None


def taking_text(template: ChatTemplate, *, is_silent: bool) -> ChatTemplate:
    """Around one that wants the arguments of calls as texts. `is_silent`: see WrittenCalls."""

    def in_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
        if not message.get("tool_calls"):
            return message
        calls = [_with_text(call) for call in message["tool_calls"]]
        content = message["content"] or (None if is_silent else "")
        return {**message, "content": content, "tool_calls": calls}

    return ToldOtherwise(template, lambda messages: list(map(in_text, messages)))


def takes_calls(template: ChatTemplate, num_calls: int) -> bool:
    """It writes an answer of so many calls, 1 or 2, and what came of them."""
    return _rendered(template, num_calls) is not None


def takes_content(template: ChatTemplate, *, is_kept: bool = True) -> bool:
    """It writes an answer that says something and calls, and all that follows; not `is_kept`: maybe
    without what is said."""
    asked, answer, *results = _chat(1)
    then = {"role": "assistant", "content": _SAID_THEN}
    chat = [asked, {**answer, "content": _SAID}, *results, then, asked]
    parts = (_VALUES[0], _RESULTS[0], _SAID_THEN, *((_SAID,) if is_kept else ()))
    return _whole(template, chat, parts) is not None


def _rendered(template: ChatTemplate, num_calls: int) -> str | None:
    """A chat with an answer of so many calls; None: refused, or not all of it is there."""
    parts = (*_VALUES[:num_calls], *_RESULTS[:num_calls])
    return _whole(template, _chat(num_calls), parts)


def _whole(template: ChatTemplate, chat: list[_Message], parts: Sequence[str]) -> str | None:
    """None: refused, or one of its `parts` is not there, or an object is as Python writes it."""
    tools = [_tool()] if "tools" in template.takes else None
    try:
        text = template.render(chat, tools=tools)
    except InvalidRequest:
        return None
    is_whole = all(part in text for part in parts)
    return text if is_whole and str(_arguments(0)) not in text else None


def _chat(num_calls: int) -> list[_Message]:
    """Ids are as Mistral's templates want them: nine letters and digits."""
    ids = [f"probe000{index}" for index in range(num_calls)]
    calls = [
        {"type": "function", "id": each, "function": {"name": NAME, "arguments": _arguments(i)}}
        for i, each in enumerate(ids)
    ]
    results = [
        {"role": "tool", "content": _RESULTS[i], "tool_call_id": each, "name": NAME}
        for i, each in enumerate(ids)
    ]
    asked = {"role": "user", "content": "Hi"}
    return [asked, {"role": "assistant", "content": "", "tool_calls": calls}, *results]


def _arguments(index: int) -> dict[str, str]:
    return {KEY: _VALUES[index]}


def _tool() -> dict[str, Any]:
    parameters = {"type": "object", "properties": {KEY: {"type": "string"}}}
    function = {"name": NAME, "description": "A function", "parameters": parameters}
    return {"type": "function", "function": function}


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    text = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}
