"""Earlier answers of several calls, for a template that takes one call of a message.

    assistant: a, b   tool: of b   tool: of a
    -> assistant: a   tool: of a   assistant: b   tool: of b

So such a chat is read on, wherever its answers were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.tools.told_otherwise import SentMessage


def one_call_each(messages: Sequence[SentMessage]) -> list[SentMessage]:
    """The same chat, in which no message has two calls."""
    told: list[SentMessage] = []
    index = 0
    while index < len(messages):
        message, end = messages[index], index + 1
        if len(message.get("tool_calls") or ()) < 2:
            told.append(message)
        else:
            while end < len(messages) and messages[end]["role"] == "tool":
                end += 1
            told += _apart(message, messages[index + 1 : end])
        index = end
    return told


def _apart(answer: SentMessage, results: Sequence[SentMessage]) -> list[SentMessage]:
    """What the answer says beside its calls is with the first of them."""
    calls = answer["tool_calls"]
    told: list[SentMessage] = []
    for call, behind in zip(calls, _by_call(calls, results), strict=True):
        said = {"role": answer["role"], "content": ""} if told else answer
        told += [{**said, "tool_calls": [call]}, *behind]
    return told


def _by_call(
    calls: Sequence[Mapping[str, Any]], results: Sequence[SentMessage]
) -> list[list[SentMessage]]:
    """Behind each call what came of it: by its id, or by their order where ids tell nothing. A
    result of no call is behind the last."""
    ids = [call.get("id") for call in calls]
    places, last = {name: place for place, name in enumerate(ids)}, len(calls) - 1
    tells_apart = len(places) == len(ids)
    found: list[list[SentMessage]] = [[] for _ in calls]
    for index, result in enumerate(results):
        name = result.get("tool_call_id")
        found[places.get(name, last) if tells_apart else min(index, last)].append(result)
    return found
