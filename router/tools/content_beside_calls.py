"""Earlier answers that say something and call, for a template that leaves out the calls of such a
message (those of the models distilled from R1), or refuses it (Mistral's of version 3).

    assistant: content, calls   ->   assistant: content   assistant: calls     `content_apart`
                                ->   assistant: calls                          `calls_alone`

Blanks are no content: to such a template they would be some.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.tools.told_otherwise import SentMessage


def content_apart(messages: Sequence[SentMessage]) -> list[SentMessage]:
    """What is said beside calls has a turn of its own before them."""
    told: list[SentMessage] = []
    for message in messages:
        if message.get("tool_calls") and _says_something(message.get("content")):
            told.append({key: value for key, value in message.items() if key != "tool_calls"})
            calls = {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}
            told.append(calls)
        else:
            told += calls_alone([message])
    return told


def calls_alone(messages: Sequence[SentMessage]) -> list[SentMessage]:
    """What is said beside calls is left out."""
    return [
        {**message, "content": ""} if message.get("tool_calls") else message for message in messages
    ]


def _says_something(content: object) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)
