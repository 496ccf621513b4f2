"""What is written of an answer while it is told, in batches: enough to tell it again.

Begun -> (DrawnBy | Told)* -> AllTold     in the order in which they came; a batch has some of them
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from cluster.generation import FinishReason, GeneratedToken, Timing, Usage
from cluster.process.loop_share import LoopShare
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens, Completed
from router.resume.past_answer import PastAnswer

Score = tuple[float | None, tuple[tuple[int, float], ...]]


class Begun(msgspec.Struct, frozen=True, tag=0, array_like=True, gc=False):
    """The first token comes next."""

    pairing_key: str
    cached_tokens: int
    max_tokens: int
    """Of each choice: its worker's room, where nobody asked for a length."""
    adapter_digest: str
    """Of the version that makes it; empty: the model alone."""


class DrawnBy(msgspec.Struct, frozen=True, tag=3, array_like=True, gc=False):
    """What a seed draws from now on. Not written where it is what the first workers drew: routers
    that do not know of this entry know of no other draws, and refuse the answer."""

    draws: int


class Told(msgspec.Struct, frozen=True, tag=1, array_like=True, gc=False):
    """Tokens of one choice."""

    choice: int
    token_ids: list[int]
    finish_reason: FinishReason | None
    scores: list[Score]
    """The logprob and the alternatives of each; empty where nobody asked for them."""

    @classmethod
    def of(cls, event: ChoiceTokens) -> Told:
        """To be written."""
        tokens = event.tokens
        has_scores = any(token.logprob is not None for token in tokens)
        scores = [(token.logprob, token.top) for token in tokens] if has_scores else []
        token_ids = [token.token_id for token in tokens]
        return cls(event.choice, token_ids, event.finish_reason, scores)

    def event(self) -> ChoiceTokens:
        """As it was relayed."""
        scores = self.scores or [(None, ())] * len(self.token_ids)
        tokens = [
            GeneratedToken(i, *score) for i, score in zip(self.token_ids, scores, strict=True)
        ]
        return ChoiceTokens(self.choice, tokens, self.finish_reason)


class AllTold(msgspec.Struct, frozen=True, tag=2, array_like=True, gc=False):
    """All was told."""

    usage: Usage
    timing: Timing


Entry = Begun | DrawnBy | Told | AllTold
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Entry])


@dataclass(frozen=True, slots=True)
class Record:
    """All that was written of one answer."""

    first_part: FirstPart | None
    max_tokens: int | None
    """As in Begun; None: it has not begun."""
    past: PastAnswer


def encoded(entries: Sequence[Entry]) -> bytes:
    """One batch."""
    return _ENCODER.encode(entries)


async def read(batches: Iterable[bytes], share: LoopShare) -> Record:
    """In its share of the loop's turns. Raises msgspec.MsgspecError for what nobody here wrote."""
    begun: Begun | None = None
    told: list[ChoiceTokens] = []
    end: Completed | None = None
    draws = 0
    for batch in batches:
        for entry in _DECODER.decode(batch):
            if isinstance(entry, Told):
                told.append(entry.event())
            elif isinstance(entry, Begun):
                begun = entry
            elif isinstance(entry, DrawnBy):
                draws = entry.draws
            else:
                end = Completed(entry.usage, entry.timing)
        await share.breathe()
    past = PastAnswer(tuple(told), end)
    if begun is None:
        return Record(None, None, past)
    first_part = FirstPart(begun.pairing_key, begun.cached_tokens, begun.adapter_digest, draws)
    return Record(first_part, begun.max_tokens, past)
