"""Prompts that are computed for themselves: no block is exported, no token sampled.

A call that ends early, by its caller, its deadline or its connection, ends the work in the engine.
"""

from __future__ import annotations

import grpc

from cluster.adapter import check_digest
from cluster.deadline import Clock
from cluster.errors import InvalidRequest, SplitserveError
from cluster.identity import OWNER_BYTES
from cluster.sampling import SamplingParams
from cluster.tracing.context import context_from_wire
from cluster.tracing.part import SpanFacts
from cluster.tracing.span import Attribute, SpanKind
from engine.contract.commands import Cancel, GenerateRequest, PrefillMode
from prefill_worker.pooled_prompt import PooledPrompt
from protos import generation_pb2, handoff_pb2
from worker.admission import check_size
from worker.exchange.cache_exports import check_incarnation, deadline_of
from worker.role import RunningWorker

_NO_TOKENS = SamplingParams(max_tokens=1)


async def pool(
    request: handoff_pb2.PoolRequest,
    worker: RunningWorker,
    context: grpc.aio.ServicerContext[handoff_pb2.PoolRequest, handoff_pb2.PoolResponse],
    clock: Clock,
) -> handoff_pb2.PoolResponse:
    """Raises what the prompt ended with."""
    _check(request, worker)
    engine_id = worker.engine.name_for(request.request_id)
    prompt = PooledPrompt(clock)
    deadline = deadline_of(context, clock)
    worker.engine.submit(
        GenerateRequest(
            request_id=engine_id,
            token_ids=list(request.token_ids),
            sampling=_NO_TOKENS,
            cache_root=request.cache_root,
            mode=PrefillMode.POOL,
            timeout_ms=deadline.remaining_ms,
            asked_s=request.asked_s if request.HasField("asked_s") else None,
            dimensions=request.dimensions if request.HasField("dimensions") else None,
            adapter=check_digest(request.adapter) if request.adapter else "",
            owner=request.owner[:OWNER_BYTES],
        ),
        prompt,
    )
    outcome = "cancelled"
    try:
        answer = await prompt.answer()
        outcome = "ok"
        return answer
    except SplitserveError:
        outcome = ""  # counted by its code, by whoever tells the caller
        raise
    finally:
        worker.engine.send(Cancel(engine_id))
        if outcome:
            worker.metrics.request_ended(outcome, prompt.usage, prompt.timing)
        _trace(request, worker, prompt, clock())


def _check(request: handoff_pb2.PoolRequest, worker: RunningWorker) -> None:
    check_incarnation(request.incarnation, worker.key)
    if not request.pooling or request.pooling != worker.pooling:
        raise InvalidRequest(
            f"asked for pooling {request.pooling[:32]!r}; this worker has "
            f"{worker.pooling or 'none'!r}: start router and workers with the same --pooling"
        )
    check_size(
        request.request_id,
        request.token_ids,
        generation_pb2.SamplingParams(),
        [],
        max_context_tokens=worker.ready.max_context_tokens,
    )


def _trace(
    request: handoff_pb2.PoolRequest, worker: RunningWorker, prompt: PooledPrompt, now_s: float
) -> None:
    if worker.tracing is None or not request.HasField("trace"):
        return
    if (parent := context_from_wire(request.trace)) is None:
        return
    part = worker.tracing.part(parent)
    error = None if prompt.error is None else prompt.error.message
    attributes: dict[str, Attribute] = {
        "splitserve.request.id": request.request_id,
        "gen_ai.usage.input_tokens": len(request.token_ids),
        "splitserve.cached_tokens": prompt.usage.cached_tokens,
    }
    facts = SpanFacts(kind=SpanKind.SERVER, attributes=attributes, error=error)
    part.whole("prefill worker", prompt.submitted_s, now_s, facts)
    if prompt.began_s is not None:
        part.add("queue", prompt.submitted_s, prompt.began_s)
        until_s = prompt.began_s + prompt.timing.prefill_ms / 1000
        part.add("pool", prompt.began_s, min(until_s, now_s) if prompt.timing.prefill_ms else now_s)
    part.send()
