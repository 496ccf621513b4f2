"""What the policy looks at and what it says: every term of a price has a name."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from cluster.generation import pairs_of
from cluster.identity import WorkerKey


class PrefillSpeed(msgspec.Struct, frozen=True):
    """Computing n tokens takes `base_ms + n * ms_per_token`, and attention to what is before."""

    base_ms: float
    ms_per_token: float
    pair_ms: float = 0.0
    """Per token and 1024 tokens before it; 0: not measured."""

    def of(self, num_tokens: int, context: int = 0) -> float:
        """Milliseconds for so many uncached tokens of one prompt, after `context` cached ones."""
        attention_ms = pairs_of(num_tokens, context) * self.pair_ms
        return self.base_ms + num_tokens * self.ms_per_token + attention_ms


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at the moment of a decision."""

    key: WorkerKey
    pairing_key: str
    """Workers pair when these are equal."""
    speed: PrefillSpeed
    matched_tokens: int = 0
    """Tokens at the prompt's start that the index believes are cached here."""
    hit_share: float = 1.0
    """What part of such beliefs has come true here of late."""
    waiting_tokens: int = 0
    """Prompt tokens queued here that are not computed yet."""
    waiting_prompts: int = 0
    """Prompts that they are of."""
    in_flight_tokens: int = 0
    """Prompt and completion tokens of this router's requests here, and of others' as they say."""
    num_running: int = 0
    """Sequences that decode here."""
    decode_step_ms: float = 0.0
    """A step as it is now, with all that runs."""
    decode_row_ms: float | None = None
    """By how much one more sequence lengthens a step; None: not measured."""
    free_tokens: int | None = None
    """Tokens that still fit in its pool, evictable blocks included; None: not known."""
    kv_bytes_per_token: int = 0
    kv_bytes_per_s: float = 1.0
    """What reads from other workers reach."""

    @property
    def trusted_tokens(self) -> int:
        """Of the matched ones, what a price counts on."""
        return int(self.matched_tokens * self.hit_share)


class RoutingView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision depends on."""

    prompt_tokens: int
    max_tokens: int
    block_size_tokens: int
    """Of the decode workers; the largest where they differ."""
    decode: tuple[WorkerView, ...]
    """Those that could take the request; at least one."""
    prefill: tuple[WorkerView, ...]
    handoff_ms: float
    """What a pair costs beside compute and bytes: messages, the first read."""
    expected_tokens: float = 256.0
    """How long one choice will probably get, at most `max_tokens`."""
    num_choices: int = 1
    links: Mapping[tuple[WorkerKey, WorkerKey], float] = msgspec.field(default_factory=dict)
    """Bytes per second of (prefill, decode) pairs that were measured; others: the reader's."""
    allows_local_prefill: bool = True
    """Of prompts that a pair could have; what is cached but for a block stays local."""
    turn: int = 0
    """Drawn at random for every decision: which of the nearly equal is taken."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a candidate, in milliseconds."""

    queue_ms: float
    """Prompt tokens that are computed before ours at the worker that prefills."""
    prefill_ms: float
    """Our uncached tokens there."""
    transfer_ms: float = 0.0
    """Bytes that the decode worker lacks, as far as they are not read while P computes."""
    handoff_ms: float = 0.0
    """Messages and first read of a pair."""
    interference_ms: float = 0.0
    """What a local prefill takes from the sequences that decode there."""
    decode_ms: float = 0.0
    """What the sequences that decode there take from our first tokens."""
    memory_ms: float = 0.0
    """Waiting for KV blocks."""

    @property
    def total_ms(self) -> float:
        """What candidates are compared by."""
        return (
            self.queue_ms
            + self.prefill_ms
            + self.transfer_ms
            + self.handoff_ms
            + self.interference_ms
            + self.decode_ms
            + self.memory_ms
        )


class Candidate(msgspec.Struct, frozen=True):
    """A way to serve the request; without `prefill` the decode worker does it alone."""

    decode: WorkerKey
    prefill: WorkerKey | None
    cost: Cost
    load_tokens: int
    """In flight at its workers: decides between equal prices."""


class RouteReason(enum.StrEnum):
    """Why a route was taken."""

    PAIR_CHEAPER = "pair_cheaper"
    PAIR_WITHIN_MARGIN = "pair_within_margin"
    LOCAL_CHEAPER = "local_cheaper"
    LOCAL_OFF = "local_off"
    """A decode worker alone would be cheaper, and may not compute prompts: see --degrade."""
    LINE_TOO_LONG = "line_too_long"
    """A pair would be cheaper, if the request did not wait in the router for a prefill worker."""
    NO_PREFILL_WORKER = "no_prefill_worker"
    NOT_PAIRED = "not_paired"
    POOLED = "pooled"
    """The prompt becomes an embedding or a score: a prefill worker answers it by itself."""
    SEVERAL_GO_ON = "several_go_on"
    """Several choices that another worker has begun: they have but the prompt in common."""


class Route(msgspec.Struct, frozen=True):
    """Where a request goes. `prefill` is best first; empty: the decode worker prefills."""

    decode: WorkerKey
    prefill: tuple[WorkerKey, ...]
    reason: RouteReason
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    """The prices that were compared: each decode worker alone, and each with its best partner;
    then the other partners of the chosen one."""
