"""What the pipeline tells a front: deltas of text per choice, then one end."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.generation import Timing, Usage
from router.text.choice import TextDelta


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """The last event of a request that succeeded."""

    usage: Usage
    timing: Timing


TextEvent = TextDelta | GenerationEnd
