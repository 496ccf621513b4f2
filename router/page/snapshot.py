"""What a page shows of a router and its fleet, at one moment: the JSON of the live stream.

Counts and times, the names of workers, and of requests and tenants the names alone; nothing that a
client wrote, and no token. For whoever has not signed in, `without_names`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace


class Blocks(msgspec.Struct, frozen=True):
    """KV blocks by state."""

    free: int = 0
    cached: int = 0
    active: int = 0
    exported: int = 0
    receiving: int = 0

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(
            self.free + other.free,
            self.cached + other.cached,
            self.active + other.active,
            self.exported + other.exported,
            self.receiving + other.receiving,
        )


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker, as it said last and as this router thinks of it."""

    id: str
    role: str
    pool: str
    state: str
    """As `splitserve status` has it."""
    running: int
    waiting: int
    in_flight: int
    """Of this router's requests."""
    blocks: Blocks
    step_ms: float
    """Of a decode step; 0: none was taken."""
    prefill_tokens_per_s: float


class PoolRow(msgspec.Struct, frozen=True):
    """All workers of one pool together."""

    pool: str
    role: str
    workers: int = 0
    ready: int = 0
    running: int = 0
    waiting: int = 0
    blocks: Blocks = Blocks()


class LinkRow(msgspec.Struct, frozen=True):
    """From a prefill to a decode worker."""

    prefill: str
    decode: str
    bytes_per_s: float | None
    """Of transfers of the last minute; None: there were none."""
    num_prefill: int
    """Requests of the pair whose prompts are being computed."""
    num_transfer: int


class QueueRow(msgspec.Struct, frozen=True):
    """Requests of one tenant and class that wait."""

    tenant: str
    priority: str
    waiting: int


class DecisionRow(msgspec.Struct, frozen=True):
    """Why a request went where it went, as `splitserve explain` has it, and what came of it."""

    request_id: str
    tenant: str
    priority: str
    reason: str
    prefill: str
    """Empty: the decode worker computed the prompt."""
    decode: str
    prompt_tokens: int
    expected_cached: int
    terms_ms: Mapping[str, float]
    """Of the chosen pair, by name; those that are 0 are left out."""
    total_ms: float
    """What candidates were compared by."""
    next_ms: float | None
    """The total of the next best; None: there was no other."""
    next_pair: str
    foretold_ms: float
    """The time to first token that was expected, with the line before it."""
    ttft_ms: float | None
    """What it came to; None: it runs, or ended otherwise."""
    cached_tokens: int | None
    end: str
    """An error's code, or "cancelled"; empty: it runs, or ended well."""


class Series(msgspec.Struct, frozen=True):
    """Of the last minutes, the oldest first, in ms; None where nothing was observed."""

    step_s: float
    ttft_p50_ms: list[float | None]
    ttft_p95_ms: list[float | None]
    itl_p50_ms: list[float | None]
    itl_p95_ms: list[float | None]


class Snapshot(msgspec.Struct, frozen=True):
    """Everything."""

    seq: int
    """Grows with each."""
    model: str
    version: str
    uptime_s: float
    problem: str
    """Why no request could be served now; empty: it could."""
    draining: bool
    given_up: str
    """Of --degrade, what is in force."""
    stages: Mapping[str, int]
    """Requests in flight."""
    pools: list[PoolRow]
    workers: list[WorkerRow]
    num_workers: int
    """`workers` has so many of them at most: see survey.py."""
    links: list[LinkRow]
    num_links: int
    queue: list[QueueRow]
    num_queues: int
    """Tenants and classes that wait; `queue` has the longest."""
    decisions: list[DecisionRow]
    series: Series

    def without_names(self) -> Snapshot:
        """Of tenants and requests nobody is named."""
        tenants: dict[str, str] = {}
        named = [row.tenant for row in self.queue] + [row.tenant for row in self.decisions]
        for tenant in named:
            tenants.setdefault(tenant, f"tenant {len(tenants) + 1}")
        return replace(
            self,
            queue=[replace(row, tenant=tenants[row.tenant]) for row in self.queue],
            decisions=[
                replace(row, tenant=tenants[row.tenant], request_id="") for row in self.decisions
            ],
        )
