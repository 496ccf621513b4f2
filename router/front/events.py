"""What the pipeline tells a front: the prompt's scores, deltas of text per choice, then one end."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.generation import PromptToken
from router.dispatch.stream import Completed
from router.text.choice import TextDelta


@dataclass(frozen=True, slots=True)
class ScoredPrompt:
    """Before the first delta, where `prompt_logprobs` was asked for. `scores` begin with the second
    token: nothing comes before the first."""

    token_ids: list[int]
    scores: list[PromptToken]


TextEvent = ScoredPrompt | TextDelta | Completed
