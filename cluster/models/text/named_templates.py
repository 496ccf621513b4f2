"""Two templates of one checkpoint: for chats with tools or calls, and for all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.models.text.chat_template import JinjaChatTemplate

DEFAULT, TOOL_USE, RAG = "default", "tool_use", "rag"
"""The names by which checkpoints tell them apart, and transformers takes the first two."""


class NamedTemplates:
    """As a JinjaChatTemplate. A chat that is offered tools, or has calls or what came of them, is
    rendered by the one of tools."""

    def __init__(self, default: JinjaChatTemplate, tool_use: JinjaChatTemplate) -> None:
        self._default = default
        self._tool_use = tool_use
        self.takes = default.takes | tool_use.takes
        self.source = f"{tool_use.source}\n{default.source}"

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        """See JinjaChatTemplate; without tools."""
        return self._default.is_short(messages)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """See JinjaChatTemplate."""
        template = self._default
        if tools is not None or any(map(_is_of_calls, messages)):
            template, tools = self._tool_use, tools or []  # which it may go through unasked
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )


def _is_of_calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls")) or message["role"] == "tool"
