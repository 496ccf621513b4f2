"""What the conductor tells all ranks about their experts, itself among them.

    Measure               who is chosen how often: all ranks add up their counts
    Stage(layer, table)   read what you gain by it, beside the steps
    Place(layer, table)   exchange the layer, if all have read
    Drop                  give back what was read

A word is ordered with the steps: every rank follows it between the same two.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.models.expert_placement import ExpertPlacement


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Adds up the picks of all ranks."""


class Stage(msgspec.Struct, frozen=True, tag=True):
    """Begins to read. What was staged before is dropped."""

    layer: int
    groups: Sequence[int]
    """Of each expert the group that will have it."""
    num_groups: int
    generation: int

    @property
    def placement(self) -> ExpertPlacement:
        """The table. Raises ValueError for one that no layer can have."""
        return ExpertPlacement(
            groups=tuple(self.groups), num_groups=self.num_groups, generation=self.generation
        )


class Place(Stage, frozen=True, tag=True):
    """Exchanges the layer at all ranks or at none."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """The placement that was staged will not be."""


ExpertWord = Measure | Stage | Place | Drop
_DECODER: msgspec.msgpack.Decoder[ExpertWord] = msgspec.msgpack.Decoder(ExpertWord)


def stage(layer: int, placement: ExpertPlacement) -> Stage:
    """The word for that placement."""
    return Stage(layer, placement.groups, placement.num_groups, placement.generation)


def place(layer: int, placement: ExpertPlacement) -> Place:
    """The word for that placement."""
    return Place(layer, placement.groups, placement.num_groups, placement.generation)


def pack(word: ExpertWord) -> bytes:
    """For the way to other ranks."""
    return msgspec.msgpack.encode(word)


def unpack(body: bytes) -> ExpertWord:
    """Raises msgspec.DecodeError."""
    return _DECODER.decode(body)
