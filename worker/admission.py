"""What a worker's server refuses before its engine sees it: sizes, and times that are no times.

The engine checks everything else, with the vocabulary at hand. Here only what would cost its thread
time, or would never end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized

from cluster.deadline import MAX_TIMEOUT_S
from cluster.errors import ContextTooLong, InvalidRequest
from cluster.generation import MAX_PREDICTION_TOKENS
from cluster.sampling import MAX_CHOICES, MAX_STOP_TOKEN_IDS
from protos import generation_pb2, handoff_pb2

MAX_REQUEST_ID_CHARS = 256
MAX_LOGIT_BIASES = 65_536
"""More than a client may send; each is looked at on the engine's thread."""
MAX_GRAMMAR_CHARS = 65_536
"""Twice what a router lets in."""
MAX_PREFILL_TARGETS = 16
"""Tried one after the other; a router proposes three."""


def check_size(
    request_id: str,
    token_ids: Sized,
    sampling: generation_pb2.SamplingParams,
    resume: Sequence[handoff_pb2.BegunChoice],
    *,
    max_context_tokens: int,
) -> None:
    """Raises InvalidRequest or ContextTooLong with the value and the limit."""
    _at_most("request_id characters", len(request_id), MAX_REQUEST_ID_CHARS)
    _at_most("logit_bias entries", len(sampling.logit_bias), MAX_LOGIT_BIASES)
    _at_most("characters of a grammar", len(sampling.grammar.text), MAX_GRAMMAR_CHARS)
    _at_most("stop_token_ids", len(sampling.stop_token_ids), MAX_STOP_TOKEN_IDS)
    _at_most("choices that go on", len(resume), MAX_CHOICES)
    longest = max((len(begun.token_ids) for begun in resume), default=0)
    if len(token_ids) + longest > max_context_tokens:
        begun = f" and {longest} of its answer" if longest else ""
        raise ContextTooLong(
            f"the prompt has {len(token_ids)} tokens{begun}, the context is "
            f"{max_context_tokens}; shorten the prompt",
            param="token_ids",
        )


def check_prefix(token_ids: Sized, *, max_context_tokens: int) -> None:
    """Raises InvalidRequest or ContextTooLong for what is no prefix to be taken over."""
    if not token_ids:
        raise InvalidRequest("the prefix has no whole block", param="token_ids")
    nothing = generation_pb2.SamplingParams()
    check_size("", token_ids, nothing, [], max_context_tokens=max_context_tokens)


def check_targets(targets: Sized) -> None:
    """Raises InvalidRequest for more prefill workers than anybody would try."""
    _at_most("prefill targets", len(targets), MAX_PREFILL_TARGETS)


def check_prediction(token_ids: Sized) -> None:
    """Raises InvalidRequest for more than would be looked at."""
    _at_most("tokens of a prediction", len(token_ids), MAX_PREDICTION_TOKENS)


def check_timeout(timeout_ms: float) -> None:
    """Raises InvalidRequest for what is no time to wait: NaN would never pass."""
    limit_ms = MAX_TIMEOUT_S * 1e3
    if not (math.isfinite(timeout_ms) and 0 < timeout_ms <= limit_ms):
        raise InvalidRequest(
            f"timeout_ms is {timeout_ms}; allowed: (0, {limit_ms:.0f}]", param="timeout_ms"
        )


def _at_most(what: str, number: int, limit: int) -> None:
    if number > limit:
        raise InvalidRequest(f"{number} {what}; at most {limit} are taken")
