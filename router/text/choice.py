"""One choice of a request, from tokens to the text that a client may see.

    tokens -> token stream -> stop matcher -> TextDelta* -> a delta with a finish reason

A token is handed on together with the last character of its text, so that no logprob is shown for
text that a stop string takes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.generation import FinishReason, GeneratedToken
from router.text.choice_count import ChoiceCount
from router.text.stop_strings import StopAutomaton, StopMatcher
from router.text.tokenizer import TokenStream


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token and where its text begins in the choice's text.

    `shown` is False for the token that ended the choice and for those a stop string took back.
    """

    token: GeneratedToken
    text_offset_chars: int
    shown: bool = True


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What is new in a choice; `num_tokens` is its count so far."""

    choice: int
    text: str
    tokens: tuple[ShownToken, ...]
    finish_reason: FinishReason | None
    num_tokens: int


@dataclass(frozen=True, slots=True)
class _Pending:
    token: GeneratedToken
    start_chars: int
    end_chars: int
    ends_choice: bool


class SilentChoice:
    """Stands in for a choice of which no token was asked for: it ends, and that is all."""

    def __init__(self, choice: int, count: ChoiceCount) -> None:
        self._choice = choice
        self._count = count
        self.finish_reason: FinishReason | None = None

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> TextDelta | None:
        """See ChoiceText."""
        self._count.take_back(len(tokens))
        if reason is None or self.finish_reason is not None:
            return None
        self.finish_reason = FinishReason.LENGTH
        return TextDelta(self._choice, "", (), self.finish_reason, 0)


class ChoiceText:
    """Owns the stream and the matcher of one choice. What it is given was counted in `count`; a
    stop string takes back what came after it, and stops the choice.

    `min_tokens`: the text of that many first tokens is not searched for stop strings.
    `keep_tokens`: deltas carry their tokens (logprobs, gRPC).
    `includes_stop`: what ends the choice is part of its text.
    """

    def __init__(
        self,
        choice: int,
        count: ChoiceCount,
        stream: TokenStream,
        stops: StopAutomaton,
        *,
        min_tokens: int = 0,
        keep_tokens: bool = False,
        includes_stop: bool = False,
    ) -> None:
        self._choice = choice
        self._count = count
        self._stream = stream
        self._matcher = StopMatcher(stops, includes_match=includes_stop)
        self._unsearched_tokens = min_tokens + 1
        """Until the first whose text is searched, that one included."""
        self._keep_tokens = keep_tokens
        self._includes_stop = includes_stop
        self._pending: deque[_Pending] = deque()
        self._arrived_chars = 0
        self._shown_chars = 0
        self.finish_reason: FinishReason | None = None

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> TextDelta | None:
        """Takes the next tokens and, with the last of them, the engine's finish reason.

        None when there is nothing to tell yet, or when the choice is over.
        """
        if self.finish_reason is not None:
            return None
        text = self._read(tokens, stops_at_last=reason is FinishReason.STOP)
        if reason is not None and not self._matcher.matched:
            text += self._match(self._stream.finish()) + self._matcher.flush()
        self.finish_reason = FinishReason.STOP if self._matcher.matched else reason
        self._shown_chars += len(text)
        shown = self._release()
        if not text and not shown and self.finish_reason is None:
            return None
        return TextDelta(self._choice, text, shown, self.finish_reason, self._count.num_tokens)

    def _read(self, tokens: Sequence[GeneratedToken], *, stops_at_last: bool) -> str:
        text = ""
        last = len(tokens) - 1
        for index, token in enumerate(tokens):
            self._unsearched_tokens -= self._unsearched_tokens > 0
            ends_choice = stops_at_last and index == last
            piece = (
                "" if ends_choice and not self._includes_stop else self._stream.step(token.token_id)
            )
            self._remember(token, len(piece), ends_choice)
            text += self._match(piece)
            if self._matcher.matched:
                self._count.take_back(last - index)
                self._count.stop()
                break
        return text

    def _match(self, piece: str) -> str:
        if self._unsearched_tokens or self._matcher.matched:
            return piece
        return self._matcher.feed(piece)

    def _remember(self, token: GeneratedToken, num_chars: int, ends_choice: bool) -> None:
        start = self._arrived_chars
        self._arrived_chars += num_chars
        if self._keep_tokens:
            self._pending.append(_Pending(token, start, self._arrived_chars, ends_choice))

    def _release(self) -> tuple[ShownToken, ...]:
        released = []
        over = self.finish_reason is not None
        while self._pending and (over or self._is_out(self._pending[0])):
            item = self._pending.popleft()
            taken_back = self._matcher.matched and item.start_chars >= self._shown_chars
            shown = not item.ends_choice and not taken_back
            released.append(ShownToken(item.token, item.start_chars, shown))
        return tuple(released)

    def _is_out(self, item: _Pending) -> bool:
        """Its text is shown; a token without text of its own waits for the next that has some."""
        if item.start_chars == item.end_chars:
            return item.end_chars < self._shown_chars
        return item.end_chars <= self._shown_chars
