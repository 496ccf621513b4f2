"""Earlier answers that say something and call, for a template that leaves out the calls of such a
message (those of the models distilled from R1), or refuses it (Mistral's of version 3).

    assistant: content, calls   ->   assistant: content   assistant: calls
                                ->   assistant: calls                        where that is refused
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.text.tokenizer import ChatTemplate

_Message = Mapping[str, Any]


class ContentBesideCalls:
    """A ChatTemplate around one of those."""

    def __init__(self, template: ChatTemplate, *, is_kept: bool) -> None:
        """`is_kept`: the content has a turn of its own before the calls; else it is left out."""
        self._template = template
        self._is_kept = is_kept
        self.takes = template.takes

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
        return self._template.render(
            [told for message in messages for told in self._turns(message)],
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )

    def _turns(self, message: _Message) -> list[_Message]:
        if not message.get("tool_calls"):
            return [message]
        if not _says_something(message.get("content")):
            return [{**message, "content": ""}]  # blanks are content to such a template
        calls = {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}
        said = {key: value for key, value in message.items() if key != "tool_calls"}
        return [said, calls] if self._is_kept else [calls]


def _says_something(content: object) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)
