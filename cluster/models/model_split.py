"""Which part of each tensor of a model a rank holds, by what the table of tensors says of it.

    by heads            Q, K, V and what expands a latent by rows; attention's output by columns
    by inner columns    gate and up by rows, down by columns; shared experts too
    by vocabulary       embedding and LM head: ceil(vocab / ranks) rows each, the last one's padded
    by experts          some routed experts to a group of ranks, which share their inner columns
    whole everywhere    norms, routers, the projections down to latents
    rank 0's            biases of outputs that are summed over the ranks

With data-parallel attention all but the routed experts is whole everywhere.

The loader slices by it, the planner counts by it. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.kv_shape import KvShape
from cluster.models.card import DecoderConfig, MixtureConfig
from cluster.models.expert_placement import ExpertPlacement, in_runs
from cluster.models.stored_tensor import Share, StoredTensor
from cluster.models.tensor_part import WHOLE, TensorPart, times
from cluster.models.tensors import expected_tensors
from cluster.sharding import ALONE, HeadSplit, Rank, RowSharing, columns_of

_WIDEST_UNIT = 256
"""Columns that are kept together where shares stay even: a block of GGUF's K formats."""
_PANEL = 32
"""Rows that kernels multiply together; shares that cannot be even are made of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSplit:
    """A rank's part of a model. Raises ConfigError where there are too few heads or experts."""

    config: DecoderConfig
    rank: Rank = ALONE
    expert_parallel_size: int | None = None
    """Groups of ranks that routed experts are dealt out to; a divisor of the ranks. None: as many
    as there are experts for. 1: every rank has a part of each expert."""
    column_unit: int = 1
    """Inner columns that stay together: what shares a scale; see `fitting_split`."""
    row_sharing: RowSharing = RowSharing.ALL
    placement: ExpertPlacement | None = None
    """Of the routed experts of a layer; None: in runs, as all layers are loaded."""

    def __post_init__(self) -> None:
        _ = self._head_split  # raises where there are too few
        if self.config.mixture is not None:
            _check_groups(self.config.mixture, self.rank, self.expert_groups)
        elif self.expert_parallel_size is not None:
            raise ConfigError(
                f"expert_parallel_size is {self.expert_parallel_size}, and the model has no routed "
                "experts; leave it away",
                param="expert_parallel_size",
            )

    @property
    def dense_rank(self) -> Rank:
        """Its part of all that is no routed expert: ALONE where it has the whole of that."""
        return ALONE if self.row_sharing is RowSharing.OWN else self.rank

    @property
    def heads(self) -> range:
        """Query heads that this rank computes."""
        return self._head_split.heads(self.dense_rank.index)

    @property
    def kv_heads(self) -> range:
        """KV heads that it computes with; of a latent, the heads that are expanded here."""
        return self._head_split.kv_heads(self.dense_rank.index)

    @property
    def pool_heads(self) -> range:
        """Those whose rows lie in its pool, by their numbers in the model. A latent is one row for
        all heads, whole at every rank."""
        if self.config.latent is not None:
            return range(self.config.kv_shape.num_kv_heads)
        return self.kv_heads

    @property
    def kv_shape(self) -> KvShape:
        """What its pool keeps of a token. A latent is whole at every rank."""
        whole = self.config.kv_shape
        return KvShape(
            num_layers=whole.num_layers,
            num_planes=whole.num_planes,
            num_kv_heads=len(self.pool_heads),
            head_dim=whole.head_dim,
        )

    @property
    def vocab_height(self) -> int:
        """Rows of its embedding and head, those that only fill up the last rank's among them."""
        return -(-self.config.vocab_size // self.dense_rank.world_size)

    @property
    def tokens(self) -> range:
        """Ids of the tokens that it has rows for."""
        first, size = self.dense_rank.index * self.vocab_height, self.config.vocab_size
        return range(min(first, size), min(first + self.vocab_height, size))

    @property
    def expert_groups(self) -> int:
        """Groups of ranks that each have other experts."""
        mixture, ranks = self.config.mixture, self.rank.world_size
        if mixture is None:
            return 1
        if self.expert_parallel_size is not None:
            return self.expert_parallel_size
        return max(n for n in range(1, ranks + 1) if ranks % n == 0 and n <= mixture.num_experts)

    @property
    def sharers(self) -> int:
        """Ranks of a group of those: neighbours, each with some of the columns."""
        return self.rank.world_size // self.expert_groups

    @property
    def expert_group(self) -> int:
        """The group that it belongs to."""
        return self.rank.index // self.sharers

    @property
    def expert_placement(self) -> ExpertPlacement:
        """Which group has which routed expert, where there are any."""
        mixture = self.config.mixture
        num_experts = 0 if mixture is None else mixture.num_experts
        return (
            in_runs(num_experts, self.expert_groups) if self.placement is None else self.placement
        )

    @property
    def experts(self) -> Sequence[int]:
        """Routed experts that it has, or has columns of."""
        return self.expert_placement.held_by(self.expert_group)

    def columns(self, width: int) -> range:
        """Its columns of a feed-forward of this inner width."""
        return _shared(width, self.column_unit, self.dense_rank)

    @property
    def expert_columns(self) -> range:
        """Its columns of each of these: of as many ranks as there are in a group."""
        mixture = self.config.mixture
        own = Rank(self.rank.index % self.sharers, self.sharers)
        return _shared(0 if mixture is None else mixture.expert_size, self.column_unit, own)

    @property
    def shared_columns(self) -> range:
        """Its columns of the shared experts together."""
        mixture = self.config.mixture
        size = 0 if mixture is None else mixture.shared_size
        return range(size) if self.row_sharing.exchanges_rows else self.columns(size)

    def part(self, name: str) -> TensorPart | None:
        """Of the tensor of this name (Hugging Face's); None: it is another rank's. Raises KeyError
        for a name that is not in the table of tensors."""
        return self.part_of(expected_tensors(self.config)[name])

    def part_of(self, tensor: StoredTensor) -> TensorPart | None:
        """As `part`."""
        if tensor.expert is not None and tensor.expert not in self.experts:
            return None
        if self.rank.is_alone or self._is_whole(tensor.share):
            return WHOLE
        if not tensor.is_summed:
            return TensorPart(rows=self._run(tensor.share, tensor.shape[0]))
        if tensor.is_matrix:
            return TensorPart(columns=self._run(tensor.share, tensor.shape[1]))
        return WHOLE if self.rank.index == 0 else None

    def _is_whole(self, share: Share) -> bool:
        """Whether every rank has all of it."""
        if self.row_sharing is RowSharing.OWN:
            return share is not Share.EXPERT
        return share is Share.WHOLE or (share is Share.SHARED and self.row_sharing.exchanges_rows)

    def _run(self, share: Share, size: int) -> range:
        """Which of `size` rows or columns are this rank's."""
        match share:
            case Share.TOKENS:
                return self.tokens
            case Share.HEADS:
                return times(self.heads, size // self.config.num_heads)
            case Share.KV_HEADS:
                return times(self.kv_heads, size // self.config.num_kv_heads)
            case Share.EXPERT:
                return self.expert_columns
            case Share.SHARED:
                return self.shared_columns
            case Share.INNER:
                return self.columns(size)
            case Share.WHOLE:
                return range(size)

    @property
    def _head_split(self) -> HeadSplit:
        return HeadSplit(
            num_heads=self.config.num_heads,
            num_kv_heads=self.config.num_kv_heads,
            world_size=self.dense_rank.world_size,
        )


def inner_unit(width: int, least: int, world_size: int) -> int:
    """Inner columns that stay together: many where all ranks still get the same, else few."""
    units = [least]
    while width % (2 * units[-1]) == 0 and 2 * units[-1] <= _WIDEST_UNIT:
        units.append(2 * units[-1])
    even = [unit for unit in units if width // unit % world_size == 0]
    enough = [unit for unit in units if unit <= _PANEL and width // unit >= world_size]
    return (even or enough or units[:1])[-1]


def _shared(width: int, least: int, rank: Rank) -> range:
    """Raises ConfigError where the columns do not go round."""
    if rank.is_alone or width == 0:
        return range(width)
    return columns_of(width, inner_unit(width, least, rank.world_size), rank)


def _check_groups(mixture: MixtureConfig, rank: Rank, groups: int) -> None:
    if groups < 1 or rank.world_size % groups or groups > mixture.num_experts:
        fitting = [
            n
            for n in range(1, rank.world_size + 1)
            if rank.world_size % n == 0 and n <= mixture.num_experts
        ]
        raise ConfigError(
            f"{mixture.num_experts} experts cannot be dealt out to {groups} groups of "
            f"{rank.world_size} ranks; use one of {', '.join(map(str, fitting))}",
            param="expert_parallel_size",
        )
