"""What `--speculation` may say: a word, or the checkpoint whose guesses are verified.

Nothing else reads that text: `wish_of` says what it asks for, and `EngineOptions.speculation_wish`
has it for whoever has the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from cluster.errors import ConfigError

_HEADS: Final = "heads"
"""Layers of the model's own checkpoint that predict further tokens."""
_NGRAM: Final = "ngram"
"""Prompt lookup, and a client's prediction."""
_AUTO: Final = "auto"
_OFF: Final = "off"
SPECULATION_WORDS: Final = (_AUTO, _OFF, _NGRAM, _HEADS)


class LookUp(Enum):
    """Where tokens are guessed at all, and texts looked up for it."""

    NEVER = "never"
    WHERE_EXACT = "where exact"
    """Where no draft changes a text."""
    ALWAYS = "always"
    """Also on a GPU, where it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationWish:
    """What is asked for."""

    look_up: LookUp
    is_by_name: bool
    """What cannot be had is an error; else it is left out."""
    source: str | None = None
    """Of a draft model or a head, as `--model` takes one; None: none is asked for."""
    takes_own_layer: bool = False
    """The model's own layers guess, where its checkpoint has some."""
    needs_own_layer: bool = False
    """They are asked for, also where it says nothing of them."""

    def asks_for_own_layer(self, *, has_own: bool) -> bool:
        """Whether the model's own layers guess. `has_own`: its checkpoint says that it has some."""
        return self.needs_own_layer or (self.takes_own_layer and has_own)


_BY_WORD: Final = {
    _AUTO: SpeculationWish(look_up=LookUp.WHERE_EXACT, is_by_name=False, takes_own_layer=True),
    _OFF: SpeculationWish(look_up=LookUp.NEVER, is_by_name=False),
    _NGRAM: SpeculationWish(look_up=LookUp.ALWAYS, is_by_name=True),
    _HEADS: SpeculationWish(look_up=LookUp.ALWAYS, is_by_name=True, needs_own_layer=True),
}


def wish_of(speculation: str) -> SpeculationWish:
    """Raises ConfigError for what there is no drafter for."""
    if not speculation:
        raise ConfigError(
            f"speculation is empty; choose {', '.join(SPECULATION_WORDS)}, a smaller model or an "
            "EAGLE-3 checkpoint",
            param="speculation",
        )
    by_source = SpeculationWish(look_up=LookUp.ALWAYS, is_by_name=True, source=speculation)
    return _BY_WORD.get(speculation, by_source)
