"""From a spec to a loaded model: device, memory budget, weights, KV pool, one warm-up step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.config import EngineOptions
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.contract.messages import Loaded
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.budget import plan_memory
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout, KvPool
from engine.memory.memory_request import MemoryBudget, MemoryRequest
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress, PhaseTimer
from engine.model.rank_place import RankPlace
from engine.model.weights.decoder_weights import DTYPES
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.device import resolve_device
from engine.runner.gpu_formats import weights_on
from engine.runner.graph_backend import CudaGraphs
from engine.runner.measured_pool import blocks_that_fit, measure_memory
from engine.runner.model_runner import DecoderRunner, ModelRunner, Replica
from engine.runner.warm_up import WarmUpLimits, longest_prompt, warm_up


def load_replica(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    """Raises a ModelError for the checkpoint, ConfigError for options that do not fit."""
    try:
        return _load(spec, progress)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the device's memory did not last while the model was loaded ({error}); lower "
            "--kv-memory-bytes, --max-num-seqs or --max-batch-tokens",
            param="kv_memory_bytes",
        ) from error


def _load(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    phases = PhaseTimer(progress)
    phases("plan memory", 0.0)
    device = resolve_device(spec.options.device)
    weights = weights_on(device, spec)
    place = RankPlace(split=ModelSplit(config=spec.card.config))
    size = _ReplicaSize.of(spec, place.split, device)
    budget = plan_memory(size.memory_request(spec, weights))
    decoder = Decoder.load(
        spec.card,
        size.dtype,
        size.device,
        phases,
        weights=weights,
        max_context_tokens=max(size.context_tokens, size.layout.block_size),  # for the warm-up
        place=place,
    )
    phases("allocate KV pool", 0.0)
    num_blocks = _num_blocks(decoder, budget, size)
    pool = KvPool(size.layout, num_blocks + size.is_replayed, size.device)  # one for padding rows
    limits = GraphLimits(max_num_seqs=size.max_num_seqs, max_context_tokens=size.context_tokens)
    runner = _runner_of(decoder, pool, limits, phases)
    warm_up(runner, size.warm_up_limits(scratch_block=pool.num_blocks - 1), phases)
    return Replica(
        runner=runner,
        loaded=_loaded(decoder, weights),
        batch_device=torch.device("cpu"),
        kv=pool.tensor[:num_blocks],
        vocab_size=spec.card.config.vocab_size,
        eos_token_ids=spec.card.eos_token_ids,
        max_context_tokens=min(size.context_tokens, num_blocks * size.layout.block_size),
        load_phases_ms=phases.finish(),
    )


def _loaded(decoder: Decoder, weights: WeightFormat) -> Loaded:
    return Loaded(
        weights=weights,
        kernel_set=decoder.kernel_set,
        num_native_calls=decoder.num_native_calls,
        why_by_kernels=decoder.why_by_kernels,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplicaSize:
    """What the options make of a model, or a rank's part of it, on this machine's device."""

    split: ModelSplit
    device: torch.device
    dtype: torch.dtype
    layout: KvLayout
    context_tokens: int
    max_num_seqs: int
    max_batch_tokens: int

    @classmethod
    def of(cls, spec: EngineSpec, split: ModelSplit, device: torch.device) -> _ReplicaSize:
        """Raises ConfigError for a context that cannot be had."""
        options, dtype = spec.options, DTYPES[spec.dtype]
        kv_dtype = QUANTIZED_DTYPES.get(spec.kv, dtype)
        layout = KvLayout.of_part(split, options.block_size_tokens, kv_dtype)
        return cls(
            split=split,
            device=device,
            dtype=dtype,
            layout=layout,
            context_tokens=resolve_context(spec.card.config, options, layout),
            max_num_seqs=options.max_num_seqs,
            max_batch_tokens=options.max_batch_tokens,
        )

    @property
    def is_replayed(self) -> bool:
        """Decode steps are captured graphs."""
        return self.device.type == "cuda"

    def memory_request(self, spec: EngineSpec, weights: WeightFormat) -> MemoryRequest:
        """For the plan."""
        return MemoryRequest(
            split=self.split,
            layout=self.layout,
            dtype=self.dtype,
            device=self.device,
            max_context_tokens=self.context_tokens,
            max_batch_tokens=self.max_batch_tokens,
            kv_memory_bytes=spec.options.kv_memory_bytes,
            memory_share=spec.options.memory_share,
            weights=weights,
            stored_bytes=spec.card.stored_bytes,
        )

    def warm_up_limits(self, scratch_block: int) -> WarmUpLimits:
        """`scratch_block` is nobody's."""
        return WarmUpLimits(
            max_num_seqs=self.max_num_seqs,
            max_batch_tokens=self.max_batch_tokens,
            max_context_tokens=self.context_tokens,
            block_size=self.layout.block_size,
            scratch_block=scratch_block,
        )


def _num_blocks(decoder: Decoder, budget: MemoryBudget, size: _ReplicaSize) -> int:
    """As planned; on a GPU, as many of these as there is room for now."""
    if size.device.type != "cuda":
        return budget.num_blocks
    longest = longest_prompt(size.warm_up_limits(scratch_block=0)).to(size.device)
    measured = measure_memory(decoder.forward, size.layout, longest)
    return blocks_that_fit(budget, measured, size.layout, max_context_tokens=size.context_tokens)


def _runner_of(
    decoder: Decoder, pool: KvPool, limits: GraphLimits, progress: PhaseProgress
) -> ModelRunner:
    """On CUDA decode steps are replayed, within the limits."""
    device = pool.tensor.device
    if device.type != "cuda":
        return DecoderRunner(decoder, pool)
    backend = CudaGraphs(device)
    return CudaRunner(decoder, pool, limits=limits, backend=backend, progress=progress)


def resolve_context(config: DecoderConfig, options: EngineOptions, layout: KvLayout) -> int:
    """The context limit in tokens: the option, or the model's as far as an explicit pool reaches.

    Raises ConfigError for more than the model was made for.
    """
    limit = config.max_context_tokens
    if options.max_context_tokens is not None:
        if options.max_context_tokens > limit:
            raise ConfigError(
                f"max_context_tokens is {options.max_context_tokens}; the model's limit is {limit}",
                param="max_context_tokens",
            )
        return options.max_context_tokens
    if options.kv_memory_bytes is not None:
        return min(limit, options.kv_memory_bytes // layout.block_bytes * layout.block_size)
    return limit
