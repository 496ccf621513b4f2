"""What the scheduler sees, and what it decides. Plain frozen values: nothing here can act."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cluster.models.footprint import SCORED_ROWS
from engine.step.planning.step_cost import StepCost

SequenceKey = tuple[int, int]
"""(arrival, choice): older sequences sort first."""


class RunningView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sequence with blocks that may compute in this step.

    A Struct, since there is one per sequence and step: made in 0.2 us, a frozen dataclass in 2.
    """

    key: SequenceKey
    num_remaining: int
    """Tokens without KV; 1 for a decode."""
    is_decode: bool
    blocks_wanted: int
    """Available blocks needed before its next token is written: 0 or 1 (growth or copy)."""
    blocks_freed: int
    """Blocks that become available when it is preempted."""
    is_preemptible: bool
    home: int
    """Where its blocks are: see cluster/block_homes.py."""
    num_computed: int = 0
    """Tokens with KV."""
    due_ms: float = 0.0
    """Prompts are computed in this order: see engine/step/planning/urgency.py."""
    is_scored: bool = False
    """Its prompt's own tokens get logprobs: of such rows a step has only so many."""
    chances: Sequence[float] = ()
    """Of a decode: of each token of its draft to be kept. They fall."""
    guess_ms: float = 0.0
    """What making one of its tokens takes, beside verifying it."""
    room_tokens: int = 0
    """Tokens of a draft that go into the block of its next token."""
    block_tokens: int = 1
    """Tokens of a block."""
    sits_out: bool = False
    """It computes nothing in this step: what its next token may be is not known yet."""

    def blocks_for_draft(self, num_tokens: int) -> int:
        """Blocks needed for so many tokens of its draft, beyond that of its next token."""
        return max(0, -(-(num_tokens - self.room_tokens) // self.block_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """A sequence without blocks, with what admitting it at one home would cost."""

    key: SequenceKey
    num_uncached: int
    """Tokens to compute after the prefix cache's share."""
    blocks_wanted: int
    """Available blocks needed for all its tokens; cached ones that nobody holds count in full."""
    seats: int
    """Sequences it will be once its prompt is computed."""
    is_remote: bool
    """Its prompt is computed elsewhere: blocks are reserved, nothing is computed."""
    home: int
    num_cached: int = 0
    """Tokens that the prefix cache has."""
    due_ms: float = 0.0
    """As in RunningView."""
    is_scored: bool = False
    """As in RunningView."""
    blocks_fresh: int = 0
    """Of `blocks_wanted`, those that the prefix cache does not have."""


Offers = tuple[WaitingView, ...]
"""One sequence, by what it would cost at each home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one step may use at one home."""

    max_batch_tokens: int
    max_num_seqs: int
    num_available: int
    """Free and cached blocks."""
    seats_taken: int
    """Sequences that decode, or will when their prompt is there."""
    max_scored_rows: int = SCORED_ROWS
    """Rows of prompts whose logits are wanted."""
    cost: StepCost = StepCost()
    """What steps take here, as measured."""
    max_step_ms: float | None = None
    """Of a step that computes prompts beside decodes; None: a multiple of the decode step."""


class ChunkLimit(enum.Enum):
    """Why a step computes no more of the prompts that are there."""

    PROMPTS = "all that is left of the prompts"
    TOKENS = "the token budget"
    TIME = "the time that running sequences can spare"
    UNMEASURED = "what a chunk takes is not known yet"
    SHARE = "a prompt that ends does not wait for others"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a prompt: the next `num_tokens` of the sequence."""

    key: SequenceKey
    num_tokens: int
    context: int = 0
    """Its tokens that have KV already."""


@dataclass(frozen=True, slots=True)
class HomeShare:
    """What one home computes in a step."""

    num_decodes: int
    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        """Rows in all."""
        return self.num_decodes + sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step: preempt, admit, then compute decodes and chunks side by side."""

    preempted: tuple[SequenceKey, ...]
    admitted: tuple[SequenceKey, ...]
    homes: tuple[int, ...]
    """Of those that are admitted, in their order."""
    decodes: tuple[SequenceKey, ...]
    chunks: tuple[Chunk, ...]
    limit: ChunkLimit = ChunkLimit.PROMPTS
    """Why the chunks are not longer."""
    draft_lengths: Mapping[SequenceKey, int] = field(default_factory=dict)
    """Of decodes: how many tokens of their drafts are verified."""

    @property
    def admissions(self) -> dict[SequenceKey, int]:
        """Who is admitted, and where."""
        return dict(zip(self.admitted, self.homes, strict=True))

    @property
    def share(self) -> HomeShare:
        """All of it, as of a single home."""
        return HomeShare(len(self.decodes), self.chunks)

    @property
    def is_empty(self) -> bool:
        """True when nothing can be done now."""
        return not (self.preempted or self.admitted or self.decodes or self.chunks)
