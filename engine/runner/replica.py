"""From a spec to a loaded model: device, memory budget, weights, KV pool, one warm-up step.

load_replica                        all of it in this process
load_part, runner_of, ...           a rank's part, and what computes it: see ranks/conductor.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import structlog
import torch

from cluster.block_homes import BlockHomes
from cluster.errors import ConfigError
from cluster.home import kernels_folder
from engine.contract.messages import Loaded
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.budget import plan_memory
from engine.memory.kv_pool import KvPool
from engine.memory.memory_request import MemoryBudget
from engine.model.adapters.rank_adapters import Agree, RankAdapters
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress, PhaseTimer
from engine.model.pooled_head import PooledHead
from engine.model.weights.open_checkpoint import fitted_split
from engine.runner import optional_heads
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.device import keep_triton_kernels, resolve_device
from engine.runner.draft_heads import states_left
from engine.runner.draft_model import DraftSize, LoadedDraft
from engine.runner.gpu_formats import weights_on
from engine.runner.graph_backend import CudaGraphs
from engine.runner.loaded_heads import LoadedHeads, warm_up_head
from engine.runner.measured_pool import (
    Forwards,
    blocks_that_fit,
    bytes_beside_torch,
    measure_memory,
)
from engine.runner.model_runner import (
    DecoderRunner,
    DraftHeads,
    DraftModel,
    LeavesStates,
    ModelRunner,
    PartRunner,
    Replica,
)
from engine.runner.portion import WHOLE_REPLICA, Portion
from engine.runner.replica_adapters import OwnAdapters, ReplicaAdapters, room_for_adapters
from engine.runner.replica_size import ReplicaSize
from engine.runner.warm_up import longest_prompts, warm_up

_LOG = structlog.get_logger()


def load_replica(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    """Raises a ModelError for the checkpoint, ConfigError for options that do not fit."""
    phases = PhaseTimer(progress)
    with memory_errors():
        part = load_part(spec, phases)
        return finish_replica(spec, part, runner_of(part, phases), phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPart:
    """A replica's weights and pool in this process: all of them, or a rank's."""

    decoder: Decoder
    pool: KvPool
    num_blocks: int
    """Of the pool, those that requests may have."""
    weights: WeightFormat
    size: ReplicaSize
    draft: DraftModel | None = None
    """What guesses for the replica; None: no model does, or one at another rank."""
    heads: DraftHeads | None = None
    """The same of a head."""

    @property
    def homes(self) -> BlockHomes:
        """Of the blocks of all ranks."""
        return BlockHomes(self.size.portion.num_homes, self.num_blocks)

    def rank_adapters(self, agree: Agree) -> RankAdapters | None:
        """What follows words of adapters; None: none are loaded. Once."""
        bank = self.decoder.bank
        return None if bank is None else RankAdapters(bank, agree)


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """A device whose memory runs out while a model is loaded has options that do not fit."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the device's memory did not last while the model was loaded ({error}); lower "
            "--kv-memory-bytes, --max-num-seqs or --max-batch-tokens",
            param="kv_memory_bytes",
        ) from error


def load_part(
    spec: EngineSpec, phases: PhaseProgress, portion: Portion = WHOLE_REPLICA
) -> LoadedPart:
    """Raises as load_replica, and RankLost where the other ranks do not load theirs."""
    phases("plan memory", 0.0)
    device = resolve_device(spec.options.device)
    if device.type == "cuda":
        keep_triton_kernels(kernels_folder() / "triton")
    weights = weights_on(device, spec)
    split = fitted_split(spec.card, portion.split_of(spec.card.config), weights)
    draft = DraftSize.of(spec, portion, device)
    heads, size = optional_heads.sized(spec, portion, split, device, weights=weights, draft=draft)
    budget = plan_memory(size.memory_request(spec, weights))
    beside_torch = bytes_beside_torch(device) if size.has_gpu_in_group else 0
    decoder = Decoder.load(
        spec.card,
        size.dtype,
        size.device,
        phases,
        weights=weights,
        max_context_tokens=max(size.context_tokens, size.layout.block_size),  # for the warm-up
        place=portion.place_of(size.split),
        pooling=spec.pooling,
        adapters=room_for_adapters(spec.options, size.split),
        states_of=states_left(spec, heads),
    )
    loaded_draft, loaded_heads = None, None
    if draft is not None and size.why_no_drafts is None:
        loaded_draft = draft.load(device, phases, context_tokens=size.context_tokens)
    if heads is not None:
        phases("load head", 0.0)
        context_tokens = size.context_tokens
        loaded_heads = optional_heads.loaded(spec, heads, decoder, context_tokens=context_tokens)
    portion.await_others()
    size = _agreed(size, portion.agreed)
    phases("allocate KV pool", 0.0)
    beside = loaded_heads if loaded_draft is None else loaded_draft
    fitting = _num_blocks(decoder, budget, size, beside_torch, beside)
    num_blocks = portion.agreed(fitting, size.device)
    pool = KvPool(size.layout, num_blocks + size.pads_rows, size.device)
    return LoadedPart(
        decoder=decoder,
        pool=pool,
        num_blocks=num_blocks,
        weights=weights,
        size=size,
        draft=_drafting(loaded_draft, decoder, num_blocks, size=size, progress=phases),
        heads=None if loaded_heads is None else loaded_heads.with_pool(pool, decoder),
    )


def finish_replica(
    spec: EngineSpec, part: LoadedPart, runner: ModelRunner, phases: PhaseTimer
) -> Replica:
    """Warms it up, by the runner that the engine will use."""
    size, num_blocks = part.size, part.num_blocks
    warm_up(runner, size.warm_up_limits(_scratch_blocks(part)), phases)
    if part.draft is not None:
        limits = size.warm_up_limits([num_blocks - 1]).beside(part.draft.max_context_tokens)
        warm_up(part.draft.runner, limits, phases)
    if part.heads is not None:
        if isinstance(runner, LeavesStates):
            part.heads.runner.follow(runner)
        warm_up_head(part.heads, size.warm_up_limits([num_blocks - 1]), phases)
    return Replica(
        runner=runner,
        loaded=_loaded(part),
        batch_device=torch.device("cpu"),
        kv=part.pool.tensor[:num_blocks],
        vocab_size=spec.card.config.vocab_size,
        eos_token_ids=spec.card.eos_token_ids,
        max_context_tokens=min(size.context_tokens, num_blocks * size.layout.block_size),
        num_homes=part.homes.num_homes,
        adapters=_own_adapters(part),
        load_phases_ms=phases.finish(),
        pooled_head=None if spec.pooling is None else PooledHead.of(spec.card, spec.pooling),
        draft=part.draft,
        heads=part.heads,
        draft_shapes=size.draft_shapes,
        why_no_drafts=size.why_no_drafts,
    )


def _agreed(size: ReplicaSize, agreed: Callable[[int, torch.device], int]) -> ReplicaSize:
    """With what all ranks must have alike: they may have other GPUs, with other memory."""
    size = replace(size, context_tokens=agreed(size.context_tokens, size.device))
    if not (size.is_replayed and size.looks_up):
        return size
    has_room = agreed(int(size.why_no_drafts is None), size.device)
    why = size.why_no_drafts or "another rank's GPU has no room for their rows"
    return replace(size, why_no_drafts=None if has_room else why)


def _own_adapters(part: LoadedPart) -> ReplicaAdapters | None:
    """Of a replica that is all in this process."""
    own, bank = part.rank_adapters(lambda number: number), part.decoder.bank
    return None if own is None or bank is None else OwnAdapters(own, bank)


def _scratch_blocks(part: LoadedPart) -> list[int]:
    """One of each home, by the numbers of the runner's steps. No request has any yet."""
    if not part.homes.are_several:
        return [part.pool.num_blocks - 1]
    return [part.homes.ids_of(rank).start for rank in range(part.homes.num_homes)]


def _loaded(part: LoadedPart) -> Loaded:
    decoder, is_quantized = part.decoder, part.size.layout.kv != "auto"
    is_native = decoder.num_native_calls > 0
    return Loaded(
        weights=part.weights,
        has_alike_rows=decoder.has_alike_rows and (is_native or not is_quantized),
        kernel_set=decoder.kernel_set,
        num_native_calls=decoder.num_native_calls,
        why_by_kernels=decoder.why_by_kernels,
    )


def _num_blocks(
    decoder: Decoder,
    budget: MemoryBudget,
    size: ReplicaSize,
    beside_torch: int,
    beside: LoadedDraft | LoadedHeads | None,
) -> int:
    """As planned; on a GPU, as many of these as there is room for now. `beside_torch`: bytes, when
    the plan was made."""
    if size.device.type != "cuda":
        return budget.num_blocks
    limits = size.warm_up_limits([0])
    longest = [batch.to(size.device) for batch in longest_prompts(limits)]
    models = [Forwards(decoder.forward, size.layout, longest)]
    if beside is not None:
        models.append(beside.longest(limits, decoder))
    measured = measure_memory(models, settle=size.portion.settle)
    if size.has_gpu_in_group:
        taken = bytes_beside_torch(size.device) - beside_torch
        measured = replace(measured, library_bytes=max(0, taken))
    return blocks_that_fit(
        budget,
        measured,
        size.layout,
        max_context_tokens=size.context_tokens,
        beside_bytes=size.beside.block_bytes,
    )


def runner_of(part: LoadedPart, progress: PhaseProgress) -> PartRunner:
    """On CUDA decode steps are replayed, within the limits: then all ranks of a group call this at
    once, and capture side by side. Raises RankLost where one of them does not."""
    size = part.size
    if size.device.type == "cuda" and not size.is_replayed:
        _LOG.info("decode steps are computed kernel by kernel", why=size.why_not_replayed)
    limits = GraphLimits(
        max_num_seqs=size.max_num_seqs,
        max_context_tokens=size.context_tokens,
        drafts=size.draft_shapes,
        states_width=0 if part.heads is None else part.heads.states_width,
    )
    return _runner_over(part.decoder, part.pool, size, limits=limits, progress=progress)


def _drafting(
    draft: LoadedDraft | None,
    target: Decoder,
    num_blocks: int,
    *,
    size: ReplicaSize,
    progress: PhaseProgress,
) -> DraftModel | None:
    """With its pool, and what computes it: decode steps as the target's."""
    if draft is None:
        return None
    limits = GraphLimits(max_num_seqs=size.max_num_seqs, max_context_tokens=draft.context_tokens)
    runner_over = partial(_runner_over, size=size, limits=limits, progress=progress)
    return draft.with_pool(num_blocks, target, pads_rows=size.pads_rows, runner_over=runner_over)


def _runner_over(
    decoder: Decoder,
    pool: KvPool,
    size: ReplicaSize,
    *,
    limits: GraphLimits,
    progress: PhaseProgress,
) -> PartRunner:
    if not size.is_replayed:
        return DecoderRunner(decoder, pool)
    settle = None if size.portion.rank.is_alone else size.portion.settle
    backend = CudaGraphs(size.device, settle)
    return CudaRunner(decoder, pool, limits=limits, backend=backend, progress=progress)
