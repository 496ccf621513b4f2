"""A real model loaded in this process, without workers: for `splitserve quality` and benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cluster.engine_options import EngineOptions
from cluster.identity import Role
from cluster.models.cache.store import ModelStore
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.contract.spec import EngineSpec, resolve_dtype, resolve_weights
from engine.process.memory_habits import keep_freed_memory, spare_loaded_objects
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.device import resolve_device
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.step.engine import Engine

MAX_STEP_MS = 60_000.0
"""Nobody reads along: beside decodes, too, prompts are computed in the largest chunks there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSetup:
    """Which model, how. "auto" is what an operator gets who says nothing."""

    model: str = "smollm2"
    dtype: str = "auto"
    weights: str = "auto"
    kv: str = "auto"
    device: str = "auto"
    num_threads: int | None = None
    prefix_cache: bool = False
    max_batch_tokens: int = 512

    @property
    def options(self) -> EngineOptions:
        """Of the engine."""
        return EngineOptions(
            device=self.device,
            num_threads=self.num_threads,
            prefix_cache=self.prefix_cache,
            max_batch_tokens=self.max_batch_tokens,
            max_step_ms=MAX_STEP_MS,
        )


def offline_spec(setup: OfflineSetup) -> EngineSpec:
    """Reads no weight. Raises ModelError, or ConfigError for a value that there is not."""
    card, options = ModelStore().resolve(setup.model), setup.options
    dtype = resolve_dtype(card, setup.dtype)
    device = resolve_device(setup.device)
    return EngineSpec(
        card=card,
        dtype=dtype,
        weights=resolve_weights(card, setup.weights, dtype, device.type),
        kv=setup.kv,
        role=Role.DECODE,
        worker_id="offline",
        incarnation="offline",
        options=options,
    )


def load_offline(setup: OfflineSetup) -> Replica:
    """Loads it and sets this process's threads, as an engine process does.

    Raises ModelError, or ConfigError for what does not fit.
    """
    spec = offline_spec(setup)
    use_threads_to_load(spec.options.num_threads)
    keep_freed_memory()
    replica = load_replica(spec, lambda phase, fraction: None)
    use_threads_to_serve(replica.kv.device)
    spare_loaded_objects()
    return replica


def offline_engine(setup: OfflineSetup) -> Engine:
    """For `engine.offline.queue.generate`."""
    return Engine(load_offline(setup), setup.options)


def greedy_request(
    request_id: str, token_ids: list[int], max_tokens: int, *, logprobs: int | None = None
) -> GenerateRequest:
    """The likeliest tokens, exactly `max_tokens` of them, however long that takes."""
    return GenerateRequest(
        request_id=request_id,
        token_ids=token_ids,
        sampling=SamplingParams(
            max_tokens=max_tokens, temperature=0.0, ignore_eos=True, logprobs=logprobs
        ),
        cache_root=bytes(16),
        timeout_ms=math.inf,
    )
