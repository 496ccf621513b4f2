"""Requests that are over as `slow` compares them: how long until the first token, where that went,
and by what they are told apart.

What is told of a leg is durations by its workers' clocks; what they leave of the time that the
router saw is shared by hops, and counted where it is: before the first token, or in a handoff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from cluster.identity import Role
from protos import router_admin_pb2


class TtftStage(StrEnum):
    """Of the time to first token; together they are all of it."""

    DOOR = "door"
    QUEUE = "queue"
    RETRY = "retry"
    SLOT = "slot"
    WAIT = "wait"
    COMPUTE = "compute"
    TRANSFER = "transfer"
    FIRST = "first"


IN_WORDS = {
    TtftStage.DOOR: "being read and checked at the door",
    TtftStage.QUEUE: "waiting in the router's line",
    TtftStage.RETRY: "lost at workers that failed or let it go",
    TtftStage.SLOT: "waiting for a decode slot",
    TtftStage.WAIT: "waiting for prefill",
    TtftStage.COMPUTE: "computing prompts",
    TtftStage.TRANSFER: "handing over between prefill and decode",
    TtftStage.FIRST: "getting the first token out",
}


class By(StrEnum):
    """What requests are told apart by."""

    LENGTH = "length"
    HIT = "hit"
    POOL = "pool"
    WORKER = "worker"
    TENANT = "tenant"
    MODEL = "model"
    ROUTE = "route"


NOT_KNOWN = "not known"
NO_KEY = "(no key)"
_LENGTHS = (128, 512, 2048, 8192, 32768)
_CANCELLED = "cancelled"
NO_POOLS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """One that is over. Times in milliseconds."""

    ttft_ms: float | None
    """None: it failed before its first token."""
    itl_ms: float | None
    """The mean time between its tokens; None: it had one, or did not end well."""
    stages: Mapping[TtftStage, float]
    """Of its time to first token; empty without one."""
    slices: frozenset[tuple[By, str]]
    """Where it belongs."""


def timed(
    trace: router_admin_pb2.RequestTrace,
    models: Mapping[str, str],
    pools: Mapping[str, str] = NO_POOLS,
) -> TimedRequest | None:
    """`models`, `pools`: names, by worker; one that has left counts as of the pool of its role's
    name. None for a request whose client left before its first token: nobody knows how long it
    would have taken."""
    has_token = trace.HasField("first_token_ms")
    if not has_token and trace.arrival.end in ("", _CANCELLED):
        return None
    return TimedRequest(
        ttft_ms=trace.first_token_ms if has_token else None,
        itl_ms=trace.timing.itl_ms or None,
        stages=stages_of(trace) if has_token else {},
        slices=frozenset(_slices(trace, models, pools)),
    )


def stages_of(trace: router_admin_pb2.RequestTrace) -> dict[TtftStage, float]:
    """Of a request that had its first token; their sum is the time until then."""
    ttft_ms = trace.first_token_ms
    leg = _leg_of_first_token(trace)
    sent_ms = trace.legs[0].sent_ms if trace.legs else ttft_ms
    read_ms = min(trace.read_ms, sent_ms)
    parts = {
        TtftStage.DOOR: read_ms,
        TtftStage.QUEUE: sent_ms - read_ms,
        TtftStage.RETRY: 0.0 if leg is None else leg.sent_ms - sent_ms,
        **({} if leg is None else _at_workers(trace, leg)),
    }
    return _fitted(parts, ttft_ms)


def _leg_of_first_token(
    trace: router_admin_pb2.RequestTrace,
) -> router_admin_pb2.TraceLeg | None:
    """Of several that had one, the first: what came later was not waited for."""
    began = [leg for leg in trace.legs if leg.HasField("first_token_ms")]
    return min(began, key=lambda leg: leg.first_token_ms) if began else None


def _at_workers(
    trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg
) -> dict[TtftStage, float]:
    """As they say; what nobody says is left for the first token."""
    stages, timing = leg.stages, trace.timing
    if not leg.HasField("stages"):
        return {TtftStage.COMPUTE: timing.prefill_ms, TtftStage.TRANSFER: timing.kv_ms}
    if not stages.HasField("reserved_ms"):
        computing_ms = min(timing.prefill_ms or stages.first_token_ms, stages.first_token_ms)
        return {
            TtftStage.WAIT: stages.first_token_ms - computing_ms,
            TtftStage.COMPUTE: computing_ms,
        }
    asked_ms = max(stages.reserved_ms, stages.asked_ms)
    at_source_ms = stages.source_queue_ms + stages.source_prefill_ms
    return {
        TtftStage.SLOT: stages.reserved_ms,
        TtftStage.WAIT: asked_ms - stages.reserved_ms + stages.source_queue_ms,
        TtftStage.COMPUTE: stages.source_prefill_ms,
        TtftStage.TRANSFER: stages.first_token_ms - asked_ms - at_source_ms,
    }


def _fitted(parts_ms: Mapping[TtftStage, float], total_ms: float) -> dict[TtftStage, float]:
    """Cut from the first on where clocks make them more than the whole; the rest is the last's."""
    fitted, left_ms = dict.fromkeys(TtftStage, 0.0), total_ms
    for stage, part_ms in parts_ms.items():
        fitted[stage] = min(max(0.0, part_ms), left_ms)
        left_ms -= fitted[stage]
    fitted[TtftStage.FIRST] += left_ms
    return fitted


def _slices(
    trace: router_admin_pb2.RequestTrace, models: Mapping[str, str], pools: Mapping[str, str]
) -> Iterator[tuple[By, str]]:
    """At most one worker of each pool, which is as `get pools` calls it: those of the leg that its
    first token came from, else of the last."""
    leg = _leg_of_first_token(trace) or (trace.legs[-1] if trace.legs else None)
    prefill, decode = _workers(trace, leg)
    yield By.LENGTH, _length_of(trace.prompt_tokens)
    yield By.HIT, _hit_of(trace)
    yield By.TENANT, trace.arrival.tenant or NO_KEY
    yield By.MODEL, models.get(decode, NOT_KNOWN)
    yield By.ROUTE, ("pair" if prefill else "alone") if decode else "no worker"
    for role, worker in ((Role.PREFILL, prefill), (Role.DECODE, decode)):
        if worker:
            yield By.POOL, pools.get(worker, role.value)
            yield By.WORKER, worker


def _workers(
    trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg | None
) -> tuple[str, str]:
    """Who computed its prompt for another, and who decoded; empty: nobody."""
    if leg is None:
        return "", ""
    if trace.timing.decode_worker == leg.decode_worker:
        return trace.timing.prefill_worker, leg.decode_worker
    return leg.prefill_worker, leg.decode_worker


def _length_of(prompt_tokens: int) -> str:
    if not prompt_tokens:
        return NOT_KNOWN
    lower = 0
    for upper in _LENGTHS:
        if prompt_tokens < upper:
            return f"{lower}-{upper - 1} tokens"
        lower = upper
    return f"{lower} tokens and more"


def _hit_of(trace: router_admin_pb2.RequestTrace) -> str:
    if not trace.HasField("usage") or not trace.usage.prompt_tokens:
        return NOT_KNOWN
    share = trace.usage.cached_tokens / trace.usage.prompt_tokens
    if not trace.usage.cached_tokens:
        return "0% cached"
    return "1-49% cached" if share < 0.5 else "50-89% cached" if share < 0.9 else "90-100% cached"
