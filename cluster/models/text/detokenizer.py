"""Text as it grows: one token in, the text that is certain now out.

    tokens   f0 9f  98 80 | " hel" | "lo"
    text     held   "😀"  | " hel" | "lo"

A token may end in the middle of a UTF-8 character; its text is held back until the rest comes, or
until `finish()`. The pieces put together are what decoding all tokens at once gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import DecodeStream

REPLACEMENT = "�"
MAX_WHOLE_TEXTS = 4096
"""Of a tokenizer, those that come first, which are those that come often: all of a vocabulary of
49,000 would be 5 MB more while a router serves. A text is found in a sixth of the time."""
MAX_HELD_TOKENS = 16
"""A character has four bytes at most: so many tokens without one are not going to become text."""


class TokenTexts(Protocol):
    """What a tokenizer knows of tokens, and what its detokenizers ask. All that is the same as long
    as it lives, and any thread may ask."""

    @property
    def backend(self) -> Backend:
        """Of the tokenizers library: its own streams need it."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that have no text of their own."""

    @property
    def whole_texts(self) -> dict[int, str]:
        """Of tokens that are whole characters whatever stands before them, as far as detokenizers
        have come upon them: they write here, MAX_WHOLE_TEXTS at most."""

    @property
    def is_of_bytes_alone(self) -> bool:
        """What is before a token changes nothing of its text."""

    def knows(self, token_id: int) -> bool:
        """False for ids that stand for nothing."""

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of these tokens; U+FFFD for bytes that form no character."""


class IncrementalDetokenizer:
    """Of one choice. Not thread-safe. Special tokens have no text, unless `shows_special`.

    `prompt_tail_ids`: the last tokens of the prompt, for tokenizers that write a space only between
    words; their text is not repeated.
    """

    def __init__(
        self,
        tokenizer: TokenTexts,
        prompt_tail_ids: Sequence[int] = (),
        *,
        shows_special: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._shows_special = shows_special
        self._context = self._clean(prompt_tail_ids)
        self._held: list[int] = []
        self._whole_texts = tokenizer.whole_texts
        self._is_behind = False
        """The stream has not seen all of the tokens; none of those that it lacks matters."""
        self._stream = self._new_stream()

    @property
    def is_holding(self) -> bool:
        """True while there are tokens whose text is held back."""
        return bool(self._held)

    def step(self, token_id: int) -> str:
        """The text that this token completes; "" while it is held back. Never raises for an id."""
        if not self._held and (whole := self._whole_texts.get(token_id)) is not None:
            self._is_behind = True
            return whole
        return self._step(token_id)

    def _step(self, token_id: int) -> str:
        is_hidden = token_id in self._tokenizer.special_ids and not self._shows_special
        if is_hidden or not self._tokenizer.knows(token_id):
            return ""
        if self._is_behind:
            self._begin_anew()
        self._held.append(token_id)
        try:
            text = self._stream.step(self._tokenizer.backend, token_id)
        except Exception:  # "Invalid prefix encountered": earlier text has changed
            return self._restart()
        if text is None:
            return self._restart() if len(self._held) >= MAX_HELD_TOKENS else ""
        if len(self._held) == 1:
            self._remember(token_id, text)
        self._context, self._held = self._held, []
        return text

    def _begin_anew(self) -> None:
        self._is_behind = False
        self._context = []
        self._stream = self._new_stream()

    def _remember(self, token_id: int, text: str) -> None:
        tokenizer = self._tokenizer
        is_always_so = tokenizer.is_of_bytes_alone and token_id not in tokenizer.special_ids
        if is_always_so and len(self._whole_texts) < MAX_WHOLE_TEXTS:
            self._whole_texts[token_id] = text

    def finish(self) -> str:
        """What is still held, with U+FFFD for what never became a character. Ends the stream."""
        return self._restart() if self._held else ""

    def _restart(self) -> str:
        text = self._held_text()
        self._context, self._held = self._clean(self._held), []
        self._stream = self._new_stream()
        return text

    def _held_text(self) -> str:
        """The held tokens' text after their context; alone where the context's text changed."""
        before = self._decode(self._context)
        together = self._decode([*self._context, *self._held])
        if together.startswith(before):
            return together[len(before) :]
        return self._decode(self._held)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special=not self._shows_special)

    def _clean(self, token_ids: Sequence[int]) -> list[int]:
        """Ids whose text ends with a whole character; none otherwise."""
        known = [token_id for token_id in token_ids if self._tokenizer.knows(token_id)]
        return [] if self._decode(known).endswith(REPLACEMENT) else known

    def _new_stream(self) -> DecodeStream:
        return DecodeStream(ids=self._context or None, skip_special_tokens=not self._shows_special)
