"""Which bytes of other ranks' blocks go where in mine: a pure function of global integers.

    blocks of both sides are made of granules (`cluster.granule`)
    run, granule i of a block there, j of one here: source + i * step -> target + j * step
    layers that rank 0 has whole, behind those that are shared: one run more, from it to it

A head is read from one of its holders, who hold equal bytes: which one, the reading rank's number
decides, so that several readers do not all ask the same. Nobody counts heads per rank. Of ranks
that share blocks each has all heads of its own: there a block's number says who is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from cluster.block_homes import BlockHomes
from cluster.errors import TransferFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockForm:
    """How the bytes of a block lie at one rank: [planes, heads, rows], and behind the rows of a
    head of a quantized pool their scales. Behind all of that, at rank 0, further planes with all
    heads; and, where ranks share heads unevenly, what fills up a layer of the pool."""

    num_planes: int
    """Of all layers together whose heads ranks share."""
    heads: range
    """Numbers in the model; a latent is head 0."""
    block_size: int
    row_bytes: int
    """Of one token's values."""
    scale_bytes: int = 0
    """Of one token's scale."""
    num_whole: int = 0
    """Heads of further planes that lie here whole."""
    layer_planes: int = 1
    """Of one layer."""

    @property
    def head_bytes(self) -> int:
        """Of one head of one plane."""
        return self.block_size * (self.row_bytes + self.scale_bytes)

    @property
    def num_shared(self) -> int:
        """Heads of all planes that ranks share, here."""
        return self.num_planes * len(self.heads)

    @property
    def block_bytes(self) -> int:
        """Size and stride of a block."""
        layer = self.layer_planes * len(self.heads)
        return -(-(self.num_shared + self.num_whole) // layer) * layer * self.head_bytes

    def offset(self, plane: int, head: int) -> int:
        """Of a head that this rank holds."""
        return (plane * len(self.heads) + self.heads.index(head)) * self.head_bytes


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of the first granule of a block there that are the first granule's of one here."""

    rank: int
    """Who is read, where ranks share the heads of every block."""
    source: int
    """Offset in a block there."""
    target: int
    """Offset in a block here."""
    num_bytes: int
    step: int
    """From one granule of a block to the next, on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharding:
    """How blocks of a group become blocks of one rank of another."""

    source_parts: int
    """Granules in a block there."""
    target_parts: int
    """Granules in a block here."""
    runs: tuple[Run, ...]
    """Of a granule; neighbours are one run."""
    homes: BlockHomes | None = None
    """Of the blocks there, where ranks share them: the runs are those of each. None: they share the
    heads of every block."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who may be read, in order."""
        if self.homes is not None:
            return tuple(range(self.homes.num_homes))
        return tuple(sorted({run.rank for run in self.runs}))

    @property
    def is_same_size(self) -> bool:
        """True where a block there is a block here."""
        return self.source_parts == self.target_parts == 1

    def of_rank(self, rank: int) -> tuple[Run, ...]:
        """What is read from one of them."""
        if self.homes is not None:
            return self.runs
        return tuple(run for run in self.runs if run.rank == rank)

    def by_rank(self, granules: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
        """Who is read for these granules of the group, and which of its own they are.

        Raises TransferFailed for blocks of several ranks that share them: a sequence has one home.
        """
        if self.homes is None:
            return [(rank, granules) for rank in self.ranks]
        each = self.homes.blocks_each * self.source_parts
        (rank, *others) = sorted({granule // each for granule in granules})
        if others:
            raise TransferFailed(
                f"blocks of ranks {rank} and {others[0]} were announced as one sequence's, which "
                "has all of its blocks at one rank; connect again"
            )
        return [(rank, [granule - rank * each for granule in granules])]


SAME_BLOCKS = Resharding(source_parts=1, target_parts=1, runs=())
"""Where a block is a block, and nothing is known of its bytes."""


def reshard(sources: Sequence[BlockForm], target: BlockForm, *, asked_by: int) -> Resharding:
    """Every byte of the target's block, each once. `asked_by` is the target's rank.

    Raises ValueError where nobody holds a head. All planes and rows are alike, which is the
    caller's to see to, as is that the block sizes fit (`granule_tokens`), and are equal where
    planes lie whole at a rank.
    """
    tokens = gcd(sources[0].block_size, target.block_size)
    runs = list(_runs(sources, target, tokens, asked_by))
    return Resharding(
        source_parts=sources[0].block_size // tokens,
        target_parts=target.block_size // tokens,
        runs=tuple(_merged(runs)),
    )


def _runs(
    sources: Sequence[BlockForm], target: BlockForm, tokens: int, asked_by: int
) -> Iterator[Run]:
    owners = {head: _owner(sources, head, asked_by) for head in target.heads}
    for plane in range(target.num_planes):
        for head in target.heads:
            source = sources[owners[head]]
            there, here = source.offset(plane, head), target.offset(plane, head)
            size = tokens * target.row_bytes
            yield Run(owners[head], there, here, size, size)
            if size := tokens * target.scale_bytes:
                there += source.block_size * source.row_bytes
                here += target.block_size * target.row_bytes
                yield Run(owners[head], there, here, size, size)
    if target.num_whole:
        owner = next(at for at, form in enumerate(sources) if form.num_whole)
        there = sources[owner].num_shared * target.head_bytes
        size = target.num_whole * target.head_bytes
        yield Run(owner, there, target.num_shared * target.head_bytes, size, size)


def _owner(sources: Sequence[BlockForm], head: int, asked_by: int) -> int:
    holders = [rank for rank, form in enumerate(sources) if head in form.heads]
    if not holders:
        raise ValueError(f"no rank holds KV head {head}")
    return holders[asked_by % len(holders)]


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    """Neighbours on both sides, as one. Parts of blocks have none: what lies beside one is the next
    part on the side of the larger blocks."""
    last = runs[0]
    for run in runs[1:]:
        ends = last.rank, last.source + last.num_bytes, last.target + last.num_bytes
        if ends == (run.rank, run.source, run.target):
            size = last.num_bytes + run.num_bytes
            last = replace(last, num_bytes=size, step=size)
        else:
            yield last
            last = run
    yield last
