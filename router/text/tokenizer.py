"""What the front door needs of a tokenizer and a chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class TokenStream(Protocol):
    """The text of one choice, token by token. One owner, called in order from one thread."""

    @property
    def is_holding(self) -> bool:
        """True while some of what it was given may still become text."""
        ...

    def step(self, token_id: int) -> str:
        """New text; empty while the bytes of a character are incomplete or the token is special."""
        ...

    def finish(self) -> str:
        """What was held back; incomplete bytes become U+FFFD. Call once, at the end."""
        ...


class Tokenizer(Protocol):
    """Text to ids and back. `encode` may be called from any thread."""

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """The ids of `text`; with the model's own prefix (BOS) when `add_special`."""
        ...

    def encode_pair(self, text: str, other: str) -> list[int]:
        """Two texts as the model was trained to see them together, with what is special to it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of checked ids, without special tokens."""
        ...

    def new_stream(
        self, prompt_tail_ids: Sequence[int] = (), *, shows_special: bool = False
    ) -> TokenStream:
        """A stream for one choice that follows the prompt; its last few tokens are enough.

        `shows_special`: special tokens are written out.
        """
        ...

    def token_text(self, token_id: int) -> str:
        """One token on its own; incomplete bytes become U+FFFD."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token."""
        ...


class ChatTemplate(Protocol):
    """Messages to the text that the model was trained on."""

    @property
    def takes(self) -> frozenset[str]:
        """Names of the values that it asks for: `messages`, `tools`, `reasoning_effort`..."""
        ...

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        """True when these, as (role, content) and with nothing beside them, are surely rendered in
        a millisecond or two, whoever wrote the template."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Raises InvalidRequest when the template refuses the messages. Any thread.

        `tools`: as OpenAI's clients describe them. `variables`: of the client, beside the messages;
        what is ours keeps its value.
        """
        ...
