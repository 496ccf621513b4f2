"""What comes back from a generation: tokens, reasons, usage and timings."""

from __future__ import annotations

import enum
import math
from operator import attrgetter

import msgspec

MAX_PREDICTION_TOKENS = 8192
"""Of what a client expects an answer to be: more are not looked at."""


class FinishReason(enum.StrEnum):
    """Why a choice ended; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"


class GeneratedToken(msgspec.Struct, frozen=True, gc=False):
    """One token of one choice. `top` holds (token id, logprob), likeliest first.

    A Struct, since there is one per sequence and step: made in 0.2 us, a frozen dataclass in 1.
    """

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class PromptToken(msgspec.Struct, frozen=True, gc=False):
    """A token of the prompt, scored by the tokens before it. `rank` is 1 for the likeliest."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class BegunChoice(msgspec.Struct, frozen=True):
    """A choice that goes on where another worker left it: the tokens that its reader has."""

    choice: int
    token_ids: list[int]


class Usage(msgspec.Struct, frozen=True):
    """Counts of tokens; `completion_tokens` is over all choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    accepted_prediction_tokens: int = 0
    """Of those generated, the ones that were guessed from the client's prediction."""
    rejected_prediction_tokens: int = 0
    """Guessed from it and wrong; not among `completion_tokens`."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in milliseconds; `ttft = queue + prefill + kv + decode`.

    Fields as in `protos/generation.proto`. A worker fills queue, prefill and kv; the router
    adds its own queue, ttft, itl and takes decode as the rest.
    """

    ttft_ms: float = 0.0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    kv_ms: float = 0.0
    decode_ms: float = 0.0
    kv_bytes: int = 0
    kv_transfer_ms: float = 0.0
    kv_visible_ms: float = 0.0
    kv_transport: str = ""
    itl_ms: float = 0.0
    prefill_worker: str = ""
    decode_worker: str = ""
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    draft_tokens_by_position: tuple[int, ...] = ()
    accepted_draft_tokens_by_position: tuple[int, ...] = ()
    draft_steps: int = 0
    draft_step_tokens: int = 0
    draft_gain: float = 0.0


PAIR_UNIT_TOKENS = 1024
"""Of context: what `EngineLoad.prefill_pair_ms` counts in."""


def pairs_of(num_tokens: int, context: int) -> float:
    """The attention of a chunk: its tokens times what each looks at, in PAIR_UNIT_TOKENS.

    `context` tokens of the prompt come before it. Times `prefill_pair_ms` these are milliseconds.
    """
    return num_tokens * (context + num_tokens / 2) / PAIR_UNIT_TOKENS


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's state in numbers; fields as in `protos/worker.proto`."""

    num_running: int = 0
    num_waiting: int = 0
    waiting_prefill_tokens: int = 0
    total_blocks: int = 0
    free_blocks: int = 0
    cached_blocks: int = 0
    active_blocks: int = 0
    exported_blocks: int = 0
    receiving_blocks: int = 0
    num_leases: int = 0
    prefill_tokens_per_s: float = 0.0
    decode_step_ms: float = 0.0
    kv_bytes_per_s: float = 0.0
    num_preemptions: int = 0
    step_gap_p99_ms: float = 0.0
    waiting_prompts: int = 0
    decode_row_ms: float = 0.0
    prefill_token_ms: float = 0.0
    prefill_pair_ms: float = 0.0
    home_blocks_left: tuple[int, ...] = ()
    prefill_busy_s: float = 0.0
    decode_busy_s: float = 0.0
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    compiled_grammars: int = 0
    grammar_compile_s: float = 0.0
    grammar_masks: int = 0
    grammar_mask_s: float = 0.0

    @property
    def room_blocks(self) -> int:
        """Blocks that one sequence can have: those of the rank with the most, where ranks share
        the blocks (cluster/block_homes.py)."""
        return max(self.home_blocks_left, default=self.free_blocks + self.cached_blocks)

    @property
    def fault(self) -> str | None:
        """The first number that no worker can have, in words; None: all may be."""
        values = _load_values(self)
        if math.isfinite(sum(values)) and min(values) >= 0:
            return None  # as nearly always, and cheap: every frame has one
        for name, value in zip(_LOAD_NAMES, values, strict=True):
            if not (math.isfinite(value) and value >= 0):
                return f"load.{name} is {value}; it must be finite and >= 0"
        return None


_LOAD_NAMES = tuple(name for name in EngineLoad.__struct_fields__ if name != "home_blocks_left")
_load_values = attrgetter(*_LOAD_NAMES)
