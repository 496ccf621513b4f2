"""The seam between policy and tensors: what the engine asks of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from cluster.block_homes import BlockHomes
from engine.contract.messages import Frame, Loaded
from engine.memory.head_blocks import HeadBlocks
from engine.memory.kv_pool import KvPool
from engine.model.decoder import Decoder
from engine.model.head_output import HeadOutput
from engine.model.pooled_head import PooledHead
from engine.model.ragged_batch import RaggedBatch
from engine.runner.device import at_once
from engine.runner.draft_shapes import DraftShapes
from engine.runner.other_ranks import GroupTurn, OtherRanks
from engine.runner.replica_adapters import ReplicaAdapters
from engine.sampling.logits import SamplingRow


class ModelRunner(Protocol):
    """Called by the engine, from its one thread, at most once a step each."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks, (source, target), before the step's forward."""

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """Writes the batch's KV; returns logits, float32 [num_logits, vocab_size]; of a batch that
        is pooled hidden states, [num_logits, hidden]."""


class PartRunner(ModelRunner, Protocol):
    """Of the part of a model that is in this process, or of all of it. It takes batches on the
    host."""

    def close(self) -> None:
        """Before the process leaves its group: lets go of what holds the group's collectives, such
        as captured steps. Idempotent; steps of afterwards are computed one by one."""


class Flight(Protocol):
    """A step that was launched: its tokens are chosen where its logits are."""

    def tokens(self) -> list[int | None]:
        """Waits for the step: a token per row, None where logits had no finite maximum.

        Called once. Raises what the device has to say about the step.
        """


@runtime_checkable
class LaunchingRunner(ModelRunner, Protocol):
    """A runner whose decode steps need not wait for the host to read the tokens before.

    Everything that it is asked to do happens in the order in which it was asked. It takes batches
    on the host.
    """

    def launch(
        self,
        batch: RaggedBatch,
        rows: Sequence[SamplingRow],
        sources: Sequence[int | None],
    ) -> Flight:
        """Computes and samples a step of decodes alone, and returns without waiting for it.

        One of `rows`, all simple, and of `sources` for each sequence of the batch. A source is the
        row of the flight launched last whose token is this row's input; None: the batch has it.
        The batch's tensors may change, and `rows` be forgotten, once this has returned.
        """


@runtime_checkable
class DrawingRunner(LaunchingRunner, Protocol):
    """One whose launches may go on from any step's tokens, drawn where its logits are."""

    def draw(self, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> Flight:
        """Samples what `forward` has returned last, a token for each of the rows, all simple, and
        returns without waiting: they are sources of the next launch, in their order."""


class _Alone:
    """A GroupTurn of a replica in one process."""

    def check(self) -> None:
        """Nobody is missing."""

    def enrich(self, frame: Frame) -> None:
        """Nothing to add."""

    def idle_turn(self) -> None:
        """Nobody else is idle."""


ALONE: GroupTurn = _Alone()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModel:
    """A smaller model with the same tokens, which guesses what comes: see draft_model.py."""

    name: str
    runner: ModelRunner
    """Over a pool of its own, whose block ids are the target's. It takes batches on the host."""
    vocab_size: int
    max_context_tokens: int
    share: float
    """Bytes of its weights over the target's, as far as these are in this process."""
    wait: Callable[[], None] = at_once
    """Until it has computed what it was asked for."""


@runtime_checkable
class LeavesStates(Protocol):
    """What computes steps that leave something for a head."""

    def states(self) -> torch.Tensor:
        """See HeadsRunner; the caller's own."""


class HeadsRunner(Protocol):
    """Over the target's states: see engine/model/eagle3_head.py. Called between its steps."""

    def follow(self, steps: LeavesStates) -> None:
        """Once, before the first step: what computes the target's, in place of its decoder."""

    def states(self) -> torch.Tensor:
        """Of the target's last step, float32 [num_tokens, width], in the order of its rows."""

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, width] -> float32 [rows, hidden]: what is read of known tokens."""

    def forward(self, batch: RaggedBatch, hidden: torch.Tensor) -> HeadOutput | None:
        """Writes the KV of the batch's rows, each of a token and of `hidden` [num_tokens, hidden],
        which is of the token before; None where no logits are wanted. It takes batches on the
        host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHeads:
    """A head of the target that guesses what comes: see draft_heads.py."""

    name: str
    runner: HeadsRunner
    """Over a part of the target's blocks, or a pool of its own with the same block ids."""
    share: float
    """Bytes of its weights over the target's, as far as these are in this process."""
    blocks: HeadBlocks | None = None
    """Its part of the target's blocks; None: it has a pool of its own."""
    states_width: int = 0
    """Of what it reads of each row."""
    device: torch.device = torch.device("cpu")
    wait: Callable[[], None] = at_once
    """Until what was asked of the device is done: whose time that takes is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A loaded model and its pool, as the engine process needs them."""

    runner: ModelRunner
    loaded: Loaded
    kv: torch.Tensor
    """[blocks of one home, num_layers, num_planes, num_kv_heads, block_size, row_width]"""
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int
    """Prompt and completion of one request; never more than a home of blocks holds."""
    num_homes: int
    """Ranks that each back blocks of their own; 1: all back all, each by its heads."""
    load_phases_ms: dict[str, float] = field(default_factory=dict)
    batch_device: torch.device | None = None
    """Where the runner takes its batches; None: where the pool is."""
    adapters: ReplicaAdapters | None = None
    """None: none are loaded."""
    others: OtherRanks | None = None
    """Those that hold the rest of the model; None: it is all here."""
    draft: DraftModel | None = None
    """What guesses coming tokens, where it is a model; then `heads` is None."""
    heads: DraftHeads | None = None
    """... where it is a head; then `draft` is None."""
    draft_shapes: DraftShapes | None = None
    """Of steps with drafts that are recorded; None: such a step may have any shape."""
    why_no_drafts: str | None = None
    """Its device has no room for what was asked for; None: none of its own."""
    group_turn: GroupTurn = ALONE
    """What each turn of the engine does for them."""
    pooled_head: PooledHead | None = None
    """What becomes of pooled prompts; None: of a model that does not pool."""

    @property
    def homes(self) -> BlockHomes:
        """Of all its blocks: an engine's block ids are these."""
        return BlockHomes(self.num_homes, len(self.kv))


class DecoderRunner:
    """A PartRunner: a decoder over its KV pool, one operation after the other."""

    def __init__(self, decoder: Decoder, pool: KvPool) -> None:
        self._decoder = decoder
        self._pool = pool
        self._device = pool.tensor.device
        self._is_on_host = self._device.type == "cpu"

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        copy_blocks(self._pool.tensor, pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        there = batch if self._is_on_host else batch.to(self._device)
        return self._decoder.forward(there, self._pool)

    def close(self) -> None:
        """See PartRunner."""


def copy_blocks(kv: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """`kv` is [num_blocks, ...]; no block may be both a source and a target."""
    if pairs:
        sources, targets = (torch.tensor(ids, device=kv.device) for ids in zip(*pairs, strict=True))
        kv[targets] = kv[sources]
