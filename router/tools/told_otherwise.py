"""A chat template that is given chats in another form than clients send them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from router.text.tokenizer import ChatTemplate

SentMessage = Mapping[str, Any]
Retelling = Callable[[Sequence[SentMessage]], Sequence[SentMessage]]
"""The same chat as the template takes it; what it is given stays as it is."""


class ToldOtherwise:
    """A ChatTemplate around one that does not take every chat, or leaves out some of it."""

    def __init__(self, template: ChatTemplate, tell: Retelling) -> None:
        self._template = template
        self._tell = tell
        self.takes = template.takes

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        """See ChatTemplate: nothing is beside these, and they are told as they are."""
        return self._template.is_short(messages)

    def render(
        self,
        messages: Sequence[SentMessage],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """See ChatTemplate."""
        return self._template.render(
            self._tell(messages),
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )
