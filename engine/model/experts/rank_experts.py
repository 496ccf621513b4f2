"""One rank's part in the rebalancing: what it does when a word of the conductor comes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.experts.staging_thread import StagingThread
from engine.model.experts.words import Drop, ExpertWord, Measure, Place, Stage
from engine.model.routed_experts import RoutedExperts


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a word: the same at every rank."""

    picks: torch.Tensor | None = None
    """Of Measure: int64 [num_layers, num_experts], since the model was loaded."""
    is_placed: bool = False
    """Of Place: whether the layer was exchanged, at all ranks."""


class RankExperts:
    """Called from the rank's one thread, between the steps around the word."""

    def __init__(self, experts: RoutedExperts) -> None:
        self._experts = experts
        self._reading: StagingThread | None = None

    def follow(self, word: ExpertWord) -> Outcome:
        """Returns at once, but for a collective. Raises what the collective raises, and
        InternalError where ranks do not mean the same: both are the end of the group."""
        match word:
            case Measure():
                return Outcome(picks=self._experts.total_picks())
            case Place():
                is_placed = self._experts.place(word.layer, word.placement)
                return Outcome(is_placed=is_placed)
            case Stage():
                self._drop()
                staging = self._experts.stage(word.layer, word.placement)
                self._reading = StagingThread(staging)
            case Drop():
                self._drop()
        return Outcome()

    def wait(self, timeout_s: float) -> bool:
        """Until what was staged has been read, or has failed; for tests."""
        return self._reading is None or self._reading.join(timeout_s)

    def _drop(self) -> None:
        if self._reading is not None:
            self._reading.drop()
        self._reading = None
        self._experts.drop_staged()
