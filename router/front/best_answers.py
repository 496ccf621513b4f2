"""Of several sampled answers the likeliest: OpenAI's `best_of`.

deltas of all choices, held -> Completed -> the n with the highest mean logprob, best first
                                         -> Completed, with the tokens of the others counted
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from cluster.generation import GeneratedToken
from router.dispatch.stream import Completed
from router.front.events import TextEvent
from router.text.choice import ShownToken, TextDelta


@dataclass(slots=True)
class _Held:
    """One choice, so far."""

    deltas: list[TextDelta] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """That count."""
        return self.deltas[-1].num_tokens if self.deltas else 0

    @property
    def mean_logprob(self) -> float:
        """Of the tokens that count: not of those that a stop string took back."""
        counted = self.logprobs[: self.num_tokens]
        return sum(counted) / len(counted) if counted else 0.0

    def add(self, delta: TextDelta, *, tells_logprobs: bool) -> None:
        self.logprobs += [shown.token.logprob or 0.0 for shown in delta.tokens]
        if not tells_logprobs:
            delta = msgspec.structs.replace(delta, tokens=tuple(map(_bare, delta.tokens)))
        self.deltas.append(delta)


async def best_answers(
    events: AsyncGenerator[TextEvent, None], num_best: int, *, tells_logprobs: bool
) -> AsyncGenerator[TextEvent, None]:
    """As the pipeline's events, whose deltas carry their tokens with logprobs."""
    held: dict[int, _Held] = {}
    async with aclosing(events) as source:
        async for event in source:
            if isinstance(event, TextDelta):
                choice = held.setdefault(event.choice, _Held())
                choice.add(event, tells_logprobs=tells_logprobs)
            elif isinstance(event, Completed):
                best = sorted(held.items(), key=_likeliest_first)[:num_best]
                for place, (_, choice) in enumerate(best):
                    for delta in choice.deltas:
                        yield msgspec.structs.replace(delta, choice=place)
                num_told = sum(choice.num_tokens for _, choice in best)
                num_untold = event.usage.completion_tokens - num_told
                yield msgspec.structs.replace(event, untold_tokens=max(0, num_untold))
            else:
                yield event


def _likeliest_first(numbered: tuple[int, _Held]) -> tuple[float, int]:
    index, choice = numbered
    return -choice.mean_logprob, index


def _bare(shown: ShownToken) -> ShownToken:
    return msgspec.structs.replace(shown, token=GeneratedToken(shown.token.token_id))
