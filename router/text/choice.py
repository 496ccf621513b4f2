"""One choice of a request, from tokens to the text that a client may see.

    tokens -> token stream -> stop matcher -> TextDelta* -> a delta with a finish reason

A token is handed on together with the last character of its text, so that no logprob is shown for
text that a stop string takes back. One without text is handed on at once, unless text before it is
held back. However many are let go together, one delta brings few of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cluster.generation import FinishReason, GeneratedToken
from router.text.choice_count import ChoiceCount
from router.text.stop_strings import StopAutomaton, StopMatcher
from router.text.tokenizer import TokenStream

MAX_DELTA_LOGPROBS = 256
"""Tokens of one delta, with their alternatives: a millisecond to put into words (4.3 us each in a
chat's stream, 2-core machine)."""
MAX_UNREAD_TOKENS = 16
"""A character has four bytes: so many tokens that may be part of one wait for it."""


class ShownToken(msgspec.Struct, frozen=True, gc=False):
    """A token and where its text begins in the choice's text.

    `shown` is False for the token that ended the choice and for those a stop string took back.
    """

    token: GeneratedToken
    text_offset_chars: int
    shown: bool = True


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """What is new in a choice; `num_tokens` is its count so far."""

    choice: int
    text: str
    tokens: tuple[ShownToken, ...]
    finish_reason: FinishReason | None
    num_tokens: int
    stop: str | None = None
    """The stop string that ended the choice, with its finish reason."""


class _Pending(msgspec.Struct, frozen=True, gc=False):
    token: GeneratedToken
    start_chars: int
    end_chars: int
    ends_choice: bool

    @property
    def num_logprobs(self) -> int:
        """Its own, and those of its alternatives."""
        return 1 + len(self.token.top)


class SilentChoice:
    """Stands in for a choice of which no token was asked for: it ends, and that is all."""

    def __init__(self, choice: int, count: ChoiceCount) -> None:
        self._choice = choice
        self._count = count
        self.finish_reason: FinishReason | None = None

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> Iterable[TextDelta]:
        """See ChoiceText."""
        self._count.take_back(len(tokens))
        if reason is None or self.finish_reason is not None:
            return ()
        self.finish_reason = FinishReason.LENGTH
        return (TextDelta(self._choice, "", (), self.finish_reason, 0),)


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
        self._unread: list[_Pending] = []
        """Of which the stream may still make text."""
        self._pending: deque[_Pending] = deque()
        self._arrived_chars = 0
        self._shown_chars = 0
        self.finish_reason: FinishReason | None = None

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> Iterable[TextDelta]:
        """Takes the next tokens and, with the last of them, the engine's finish reason.

        Gives what there is to tell, to be read once and to its end before the next push: where
        there are several deltas, each is made when it is asked for. Nothing comes once the choice
        is over.
        """
        if self.finish_reason is not None:
            return ()
        text = self._read(tokens, stops_at_last=reason is FinishReason.STOP)
        if reason is not None and not self._matcher.matched:
            text += self._finish()
        self.finish_reason = FinishReason.STOP if self._matcher.matched else reason
        self._shown_chars += len(text)
        return self._told(text)

    def _read(self, tokens: Sequence[GeneratedToken], *, stops_at_last: bool) -> str:
        text = ""
        last = len(tokens) - 1
        for index, token in enumerate(tokens):
            if self._unsearched_tokens:
                self._unsearched_tokens -= 1
            ends_choice = stops_at_last and index == last
            piece = (
                "" if ends_choice and not self._includes_stop else self._stream.step(token.token_id)
            )
            self._arrived_chars += len(piece)
            if self._keep_tokens:
                self._remember(token, len(piece), ends_choice)
            text += self._match(piece)
            if self._matcher.matched:
                self._count.take_back(last - index)
                self._count.stop()
                break
        return text

    def _finish(self) -> str:
        """What was held back on the way, now that nothing follows."""
        piece = self._stream.finish()
        self._arrived_chars += len(piece)
        self._settle()
        return self._match(piece) + self._matcher.flush()

    def _match(self, piece: str) -> str:
        if self._unsearched_tokens or self._matcher.matched:
            return piece
        return self._matcher.feed(piece)

    def _remember(self, token: GeneratedToken, num_chars: int, ends_choice: bool) -> None:
        start = self._arrived_chars - num_chars
        item = _Pending(token, start, self._arrived_chars, ends_choice)
        may_become_text = not num_chars and self._stream.is_holding
        if may_become_text and len(self._unread) < MAX_UNREAD_TOKENS:
            self._unread.append(item)
        else:
            if self._unread:
                self._settle()
            self._pending.append(item)

    def _settle(self) -> None:
        """Nothing more is waited for: a character that has come since is theirs as well."""
        for item in self._unread:
            end = min(item.start_chars + 1, self._arrived_chars)
            self._pending.append(msgspec.structs.replace(item, end_chars=end))
        self._unread.clear()

    def _told(self, text: str) -> Iterable[TextDelta]:
        """`text`, and the tokens that are out with it, each with the last character of its text."""
        items = self._release() if self._pending else []
        if self._pending and self._next_is_out():
            return self._in_parts(text, items)
        if text or items or self.finish_reason is not None:
            return (self._delta(text, items, self.finish_reason),)
        return ()

    def _in_parts(self, text: str, items: list[_Pending]) -> Iterator[TextDelta]:
        """`items` first."""
        first, told = self._shown_chars - len(text), 0
        while self._next_is_out():
            end = items[-1].end_chars - first
            yield self._delta(text[told:end], items, None)
            items, told = self._release(), end
        yield self._delta(text[told:], items, self.finish_reason)

    def _release(self) -> list[_Pending]:
        """Of those that are out, as many as one delta may bring; one at least."""
        items: list[_Pending] = []
        num_logprobs = 0
        while self._next_is_out():
            num_logprobs += self._pending[0].num_logprobs
            if items and num_logprobs > MAX_DELTA_LOGPROBS:
                break
            items.append(self._pending.popleft())
        return items

    def _next_is_out(self) -> bool:
        """There is one, and its text is shown, or never will be."""
        if not self._pending:
            return False
        return self.finish_reason is not None or self._pending[0].end_chars <= self._shown_chars

    def _delta(
        self, text: str, items: Sequence[_Pending], reason: FinishReason | None
    ) -> TextDelta:
        shown = tuple([self._shown(item) for item in items]) if items else ()
        stop = None if reason is None else self._matcher.match
        return TextDelta(self._choice, text, shown, reason, self._count.num_tokens, stop)

    def _shown(self, item: _Pending) -> ShownToken:
        return ShownToken(item.token, item.start_chars, self._is_shown(item))

    def _is_shown(self, item: _Pending) -> bool:
        """Not what ended the choice, nor what a stop string took back."""
        begins_shown = item.start_chars < self._shown_chars
        is_out = begins_shown or item.end_chars <= self._shown_chars
        return not item.ends_choice and (is_out or not self._matcher.matched)
