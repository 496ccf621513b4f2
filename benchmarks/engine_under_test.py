"""A whole engine in this process: scheduler, sampler and pool around a real model, no network."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.config import EngineOptions
from cluster.identity import Role
from cluster.models.store import ModelStore
from cluster.sampling import SamplingParams
from engine.engine import Engine
from engine.messages import GenerateRequest
from engine.process import keep_freed_memory
from engine.replica import load_replica
from engine.spec import EngineSpec, resolve_dtype, resolve_weights
from engine.threads import use_threads_to_load, use_threads_to_serve


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """What is measured. "auto" is what an operator gets who says nothing."""

    model: str = "smollm2"
    num_threads: int | None = None
    dtype: str = "auto"
    weights: str = "auto"
    kv: str = "auto"
    prefix_cache: bool = False
    max_batch_tokens: int = 512


def generation_engine(setup: EngineSetup) -> Engine:
    """Loads the model and sets this process's threads, as an engine process does."""
    card = ModelStore().resolve(setup.model)
    options = EngineOptions(
        num_threads=setup.num_threads,
        prefix_cache=setup.prefix_cache,
        max_batch_tokens=setup.max_batch_tokens,
    )
    dtype = resolve_dtype(card, setup.dtype)
    spec = EngineSpec(
        card=card,
        dtype=dtype,
        weights=resolve_weights(card, setup.weights, dtype, "cpu"),
        kv=setup.kv,
        role=Role.DECODE,
        worker_id="measured",
        incarnation="measured",
        options=options,
    )
    use_threads_to_load(options.num_threads)
    keep_freed_memory()
    replica = load_replica(spec, lambda phase, fraction: None)
    use_threads_to_serve(torch.device("cpu"))
    return Engine(replica, options)


def greedy_request(request_id: str, token_ids: list[int], max_tokens: int) -> GenerateRequest:
    """The likeliest tokens, exactly `max_tokens` of them."""
    return GenerateRequest(
        request_id=request_id,
        token_ids=token_ids,
        sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        cache_root=bytes(16),
    )
