"""What a prefill worker says of a prompt, checked and converted. Raises TransferFailed for what no
request can be given: a worker that lies is given up like one that died."""

from __future__ import annotations

import math

from cluster.errors import TransferFailed
from cluster.generation import GeneratedToken, PromptToken
from cluster.sampling import MAX_LOGPROBS
from cluster.wire import prompt_token_from_wire, token_from_wire
from engine.contract.commands import ChoiceToken
from protos import handoff_pb2

MAX_TOOK_MS = 24 * 3600 * 1000.0


def cached_tokens_of(
    accepted: handoff_pb2.Accepted, *, num_prompt_tokens: int, worker_id: str
) -> int:
    """What it has cached of the prompt: no more than there is."""
    if accepted.cached_tokens > num_prompt_tokens:
        raise TransferFailed(
            f"{worker_id} says that {accepted.cached_tokens} tokens are cached; the prompt has "
            f"{num_prompt_tokens}"
        )
    return accepted.cached_tokens


def first_tokens_of(
    first: handoff_pb2.FirstToken,
    *,
    choices: list[int],
    vocab_size: int,
    worker_id: str,
    max_top: int = MAX_LOGPROBS,
) -> list[ChoiceToken]:
    """One token of each of `choices`, which are in order. `max_top`: alternatives of each."""
    sampled = sorted(item.choice for item in first.tokens)
    if sampled != choices:
        raise TransferFailed(
            f"{worker_id} sampled {len(sampled)} choices, the first ones {sampled[:8]}; "
            f"{len(choices)} were asked for, the first ones {choices[:8]}"
        )
    for name in ("queue_ms", "prefill_ms"):
        took_ms = getattr(first, name)
        if not 0 <= took_ms < MAX_TOOK_MS:
            raise TransferFailed(f"{worker_id} says that {name} is {took_ms}")
    tokens = [ChoiceToken(item.choice, token_from_wire(item.token)) for item in first.tokens]
    for item in tokens:
        _check_token(item.token, vocab_size, max_top, worker_id)
    return tokens


def scores_of(
    scored: handoff_pb2.ScoredTokens,
    *,
    expected: list[int],
    num_top: int,
    vocab_size: int,
    worker_id: str,
) -> list[PromptToken]:
    """Tokens of the prompt, the next ones of which are `expected`. `num_top`: alternatives of
    each, at most."""
    token_ids = [token.token_id for token in scored.tokens]
    if not token_ids or token_ids != expected[: len(token_ids)]:
        raise TransferFailed(
            f"{worker_id} scored {len(token_ids)} tokens from no. {scored.first_index} on; they "
            f"are not the next ones of the prompt, of which {len(expected)} are left"
        )
    tokens = [prompt_token_from_wire(token) for token in scored.tokens]
    for token in tokens:
        _check_score(token, vocab_size, num_top, worker_id)
    return tokens


def _check_score(token: PromptToken, vocab_size: int, num_top: int, worker_id: str) -> None:
    likely = max((token_id for token_id, _ in token.top), default=0)
    if likely >= vocab_size or len(token.top) > num_top or not 1 <= token.rank <= vocab_size:
        raise TransferFailed(
            f"{worker_id} scored a token with rank {token.rank} and {len(token.top)} "
            f"alternatives up to token {likely}; there are {vocab_size} tokens, and {num_top} "
            "alternatives at most"
        )
    if any(math.isnan(p) for p in (token.logprob, *(logprob for _, logprob in token.top))):
        raise TransferFailed(f"{worker_id} scored a token with a logprob of NaN")


def _check_token(token: GeneratedToken, vocab_size: int, max_top: int, worker_id: str) -> None:
    ids = [token.token_id, *(token_id for token_id, _ in token.top)]
    if max(ids) >= vocab_size or len(token.top) > max_top:
        raise TransferFailed(
            f"{worker_id} sampled token {max(ids)} with {len(token.top)} alternatives; "
            f"there are {vocab_size} tokens, and {max_top} alternatives at most"
        )
    logprobs = [token.logprob or 0.0, *(logprob for _, logprob in token.top)]
    if any(math.isnan(logprob) for logprob in logprobs):
        raise TransferFailed(f"{worker_id} sampled a token with a logprob of NaN")
