"""Where a replica's adapters are: one bank, or one in each rank of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from cluster.adapter import MAX_ADAPTERS
from cluster.engine_options import EngineOptions
from cluster.errors import AdapterRefused, AdapterUnread, ConfigError, SplitserveError
from cluster.models.model_split import ModelSplit
from cluster.sharding import RowSharing
from engine.model.adapters.bank import AdapterBank, AdapterRoom
from engine.model.adapters.rank_adapters import RankAdapters, Staged
from engine.model.adapters.words import AdapterWord, pack

MAX_SLOTS: Final = MAX_ADAPTERS + 1
"""Adapters in memory at once, and the slot of rows without."""


class ReplicaAdapters(Protocol):
    """What an engine tells its ranks, between two steps. From its one thread."""

    @property
    def room(self) -> AdapterRoom:
        """Of each of them."""

    @property
    def lora_rank_bytes(self) -> int:
        """Memory that each LoRA rank takes here."""

    @property
    def failure(self) -> SplitserveError | None:
        """Why what was settled last has failed, as far as it is known here: see RankAdapters."""

    def follow(self, word: AdapterWord) -> Staged:
        """What came of it, at all ranks. Raises RankLost."""


class OwnAdapters:
    """ReplicaAdapters of a replica in one process."""

    def __init__(self, own: RankAdapters, bank: AdapterBank) -> None:
        self._own, self.room, self.lora_rank_bytes = own, bank.room, bank.lora_rank_bytes

    @property
    def failure(self) -> SplitserveError | None:
        """See ReplicaAdapters."""
        return self._own.failure

    def follow(self, word: AdapterWord) -> Staged:
        """See ReplicaAdapters."""
        return self._own.follow(word)


class GroupAdapters(OwnAdapters):
    """ReplicaAdapters of a conductor, whose own rank is one of them."""

    def __init__(
        self,
        own: RankAdapters,
        bank: AdapterBank,
        tell: Callable[[bytes], None],
        loss_after: Callable[[Exception], Exception],
    ) -> None:
        """`tell`: all other ranks. `loss_after`: what to raise where that, or they, fail."""
        super().__init__(own, bank)
        self._tell, self._loss_after = tell, loss_after

    @property
    def failure(self) -> SplitserveError | None:
        """See ReplicaAdapters."""
        own = self._own.failure
        if self._own.outcome is Staged.REFUSED and isinstance(own, AdapterUnread | None):
            return AdapterRefused("another rank has refused it; its log has the cause")
        return own or AdapterUnread("another rank could not read it; its log has the cause")

    def follow(self, word: AdapterWord) -> Staged:
        """See ReplicaAdapters."""
        try:
            self._tell(pack(word))
            return self._own.follow(word)
        except Exception as error:
            raise self._loss_after(error) from error


def room_for_adapters(options: EngineOptions, split: ModelSplit) -> AdapterRoom | None:
    """None: nobody loads any. Raises ConfigError where steps are divided in a way that adapters
    have no part in."""
    if options.adapters is None:
        return None
    if split.row_sharing is not RowSharing.ALL:
        raise ConfigError(
            "adapters go with ranks that all have all rows of a step; leave "
            "--data-parallel-attention and --expert-exchange all-to-all out, or --adapters",
            param="adapters",
        )
    num_lora_ranks = options.adapter_ranks
    return AdapterRoom(num_lora_ranks=num_lora_ranks, num_slots=min(num_lora_ranks + 1, MAX_SLOTS))
