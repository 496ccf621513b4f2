"""Whose the time of workers was: what routers tell of it, put together and shared out.

    a worker's time  =  its tenants' + what no router that answered has asked for + idle

A worker is the same in the words of all routers: its seconds are those of the router that knows it
longest. Each router has the tokens of its own requests, which add up. Busy seconds go to tenants by
their tokens: of prompts that were computed and of answers that were decoded, each by its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protos import fleet_watch_pb2

NO_KEY = "(no key)"
UNACCOUNTED = "(unaccounted)"
"""Computed for requests of which no router that answered knows: of one that died or was not asked,
given up before a word of them came, or computed again."""


@dataclass(slots=True, kw_only=True)
class TenantTime:
    """Of somebody, at one worker or several."""

    requests: int = 0
    """At each worker that had a part in it."""
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    kv_block_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Of workers."""
        return self.prefill_s + self.decode_s

    @property
    def tokens(self) -> int:
        """Computed, of prompts and answers."""
        return self.prefill_tokens + self.decode_tokens

    def add(self, more: TenantTime) -> None:
        """Of another worker, or router."""
        self.requests += more.requests
        self.prefill_tokens += more.prefill_tokens
        self.decode_tokens += more.decode_tokens
        self.prefill_s += more.prefill_s
        self.decode_s += more.decode_s
        self.kv_block_s += more.kv_block_s


@dataclass(slots=True, kw_only=True)
class WorkerBill:
    """One process, by the words of all routers."""

    worker_id: str
    pool: str
    known_s: float
    is_gone: bool
    is_measured: bool
    parts: dict[str, TenantTime]
    """By tenant, and UNACCOUNTED where something is."""

    @property
    def busy_s(self) -> float:
        """Of everybody."""
        return sum(part.busy_s for part in self.parts.values())

    @property
    def idle_s(self) -> float:
        """The rest of its time."""
        return max(0.0, self.known_s - self.busy_s)


@dataclass(slots=True)
class _Told:
    """Of one process, by several routers."""

    longest: fleet_watch_pb2.WorkerTime
    tenants: dict[str, TenantTime] = field(default_factory=dict)


def accounts_of(answers: Iterable[fleet_watch_pb2.WorkResponse]) -> list[WorkerBill]:
    """In the order in which they are first told of."""
    told: dict[tuple[str, str], _Told] = {}
    for answer in answers:
        for worker in answer.workers:
            known = told.setdefault((worker.worker_id, worker.incarnation), _Told(worker))
            if worker.known_s > known.longest.known_s:
                known.longest = worker
            for work in worker.tenants:
                known.tenants.setdefault(work.tenant or NO_KEY, TenantTime()).add(_asked(work))
    return [_account(each) for each in told.values()]


def totals_by_tenant(accounts: Iterable[WorkerBill]) -> dict[str, TenantTime]:
    """Over all workers; who had most of their time first, and what is unaccounted last."""
    totals: dict[str, TenantTime] = {}
    for account in accounts:
        for tenant, part in account.parts.items():
            totals.setdefault(tenant, TenantTime()).add(part)
    order = sorted(totals, key=lambda name: (name == UNACCOUNTED, -totals[name].busy_s, name))
    return {name: totals[name] for name in order}


def _asked(work: fleet_watch_pb2.TenantWork) -> TenantTime:
    return TenantTime(
        requests=work.num_requests,
        prefill_tokens=work.prefilled_tokens,
        decode_tokens=work.decoded_tokens,
        kv_block_s=work.kv_block_s,
    )


def _account(told: _Told) -> WorkerBill:
    worker, parts = told.longest, dict(told.tenants)
    rest = TenantTime(
        prefill_tokens=worker.prefilled_tokens - sum(p.prefill_tokens for p in parts.values()),
        decode_tokens=worker.decoded_tokens - sum(p.decode_tokens for p in parts.values()),
    )
    rest.prefill_tokens = max(0, rest.prefill_tokens)
    rest.decode_tokens = max(0, rest.decode_tokens)
    _share([*parts.values(), rest], rest, worker)
    if rest.tokens or rest.busy_s:
        parts[UNACCOUNTED] = rest
    return WorkerBill(
        worker_id=worker.worker_id,
        pool=worker.pool or worker.role,
        known_s=max(worker.known_s, worker.prefill_busy_s + worker.decode_busy_s),
        is_gone=worker.is_gone,
        is_measured=worker.is_measured,
        parts=parts,
    )


def _share(parts: list[TenantTime], rest: TenantTime, worker: fleet_watch_pb2.WorkerTime) -> None:
    """Its busy seconds by tokens; where there are seconds and no tokens, they are the rest's."""
    prefilled = sum(part.prefill_tokens for part in parts)
    decoded = sum(part.decode_tokens for part in parts)
    for part in parts:
        if prefilled:
            part.prefill_s = worker.prefill_busy_s * part.prefill_tokens / prefilled
        if decoded:
            part.decode_s = worker.decode_busy_s * part.decode_tokens / decoded
    if not prefilled:
        rest.prefill_s = worker.prefill_busy_s
    if not decoded:
        rest.decode_s = worker.decode_busy_s
