"""What the pipeline tells a front: the prompt's scores, deltas of text per choice, then one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.generation import PromptToken
from router.dispatch.stream import Completed
from router.text.choice import TextDelta

SLICE_ALTERNATIVES = 1024
"""About 2 ms of the event loop."""


@dataclass(frozen=True, slots=True)
class ScoredPrompt:
    """Before the first delta, where `prompt_logprobs` was asked for. `scores` begin with the second
    token: nothing comes before the first."""

    token_ids: list[int]
    scores: list[PromptToken]


TextEvent = ScoredPrompt | TextDelta | Completed


class DeltaTaker(Protocol):
    """Of one prompt's answer, for deltas that need no task's turn to be told."""

    def is_ready(self) -> bool:
        """Whether it can take deltas now, without waiting for anything."""
        ...

    def take(self, delta: TextDelta) -> None:
        """The next one of the prompt. What it raises ends the request."""
        ...


async def in_slices(scores: Sequence[PromptToken]) -> AsyncIterator[PromptToken]:
    """One by one; after some alternatives the loop is let go."""
    num_named = 0
    for token in scores:
        num_named += 1 + len(token.top)
        if num_named > SLICE_ALTERNATIVES:
            num_named = 0
            await asyncio.sleep(0)
        yield token
