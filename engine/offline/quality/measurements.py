"""All tests on one setting of a model, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.offline.quality.json_answers import validity
from engine.offline.quality.needle import Cell, recall
from engine.offline.quality.reading import Reading, read_text
from engine.offline.quality.subject import Subject
from engine.offline.replica import OfflineSetup

OnPhase = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurements:
    """What one setting of a model scored."""

    reading: Reading
    found: dict[Cell, bool]
    """Needles."""
    json_validity: float
    """Share of the answers that parse."""

    @property
    def recall(self) -> float:
        """Share of the needles that were found; 1 when none was hidden."""
        return sum(self.found.values()) / len(self.found) if self.found else 1.0


def measure(
    setup: OfflineSetup, lengths: Sequence[int], *, max_tokens: int | None, progress: OnPhase
) -> Measurements:
    """Loads the model, tests it, lets it go. `lengths` are needle prompts', in tokens.

    Lengths beyond the model's context are left out.
    """
    progress("load")
    subject = Subject(setup)
    fitting = [length for length in lengths if length + 32 <= subject.max_context_tokens]
    progress("read the text")
    reading = read_text(subject, max_tokens)
    progress("look for needles")
    found = recall(subject, fitting)
    progress("write JSON")
    return Measurements(reading, found, validity(subject))
