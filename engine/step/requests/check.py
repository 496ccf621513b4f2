"""What is checked before a request enters the engine."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.beam_search import MAX_CANDIDATES, BeamSearch
from cluster.block_hash import NAME_BYTES
from cluster.errors import ContextTooLong, InvalidRequest, OutOfBlocks
from cluster.models.pooling import Pooling
from engine.contract.commands import GenerateRequest, PrefillMode
from engine.sampling.logits import end_token_ids

_MAKING_TEXT = (PrefillMode.LOCAL, PrefillMode.REMOTE, PrefillMode.EXPORT)


def check_request(
    body: GenerateRequest,
    *,
    vocab_size: int,
    max_context_tokens: int,
    pool_tokens: int,
    follows_grammars: bool,
    pooling: Pooling | None = None,
    eos_token_ids: Sequence[int] = (),
    block_size: int = 1,
) -> None:
    """Raises InvalidRequest, ContextTooLong or OutOfBlocks with the value and the limit."""
    body.sampling.check(vocab_size)
    _check_pooling(body, pooling)
    if body.sampling.beams is not None:
        _check_search(body, body.sampling.beams, vocab_size, eos_token_ids)
    _check_prompt(body, vocab_size)
    _check_resume(body, vocab_size)
    if body.prediction:
        _check_ids(body.prediction, vocab_size, "the prediction")
    if body.sampling.prompt_logprobs is not None and body.mode not in _MAKING_TEXT:
        raise InvalidRequest(
            "prompt_logprobs needs a prompt that is computed for an answer; leave them out",
            param="prompt_logprobs",
        )
    if body.sampling.grammar is not None and not follows_grammars:
        raise InvalidRequest(
            "this engine follows no grammars; leave the answer's format out", param="grammar"
        )
    is_answered = body.mode.is_answered
    completion = body.sampling.max_tokens if is_answered else body.num_begun_tokens
    num_tokens = len(body.token_ids) + completion
    stored = num_tokens - is_answered  # the last token's KV is never needed
    if body.sampling.beams is not None and is_answered:
        stored = body.sampling.beams.stored_tokens(len(body.token_ids), stored, block_size)
    if stored > pool_tokens:
        raise OutOfBlocks(
            f"prompt and completion need KV for {stored} tokens, the pool holds {pool_tokens}; "
            "shorten the prompt, lower max_tokens, or give the engine more kv_memory_bytes"
        )
    if num_tokens > max_context_tokens:
        raise ContextTooLong(
            f"prompt and completion are {num_tokens} tokens, the context is "
            f"{max_context_tokens}; shorten the prompt or lower max_tokens",
            param="max_tokens",
        )


def _check_pooling(body: GenerateRequest, pooling: Pooling | None) -> None:
    """What is asked for is what the model makes."""
    if body.mode is PrefillMode.POOL:
        if pooling is None:
            raise InvalidRequest("this engine makes neither embeddings nor scores; see --pooling")
        if body.dimensions is not None and (body.dimensions < 1 or not pooling.is_embedding):
            raise InvalidRequest(
                f"dimensions is {body.dimensions}; it is 1 or more, and of an embedding",
                param="dimensions",
            )
    elif pooling is not None and not pooling.generates and body.mode in _MAKING_TEXT:
        raise InvalidRequest(f"this model makes no text: it is made for {pooling.kind.value}")


def _check_search(
    body: GenerateRequest, beams: BeamSearch, vocab_size: int, eos_token_ids: Sequence[int]
) -> None:
    """One prompt's candidates are enough to begin with; nobody has had a token of it before."""
    ends = end_token_ids(body.sampling, eos_token_ids)
    wanted = beams.num_candidates(len(ends))
    most = min(MAX_CANDIDATES, vocab_size - len(ends))
    if wanted > most:
        raise InvalidRequest(
            f"a beam search of width {beams.width} with {len(ends)} tokens that end a text begins "
            f"with {wanted} candidates; allowed: {most}: ask for fewer beams",
            param="use_beam_search",
        )
    if body.resume:
        raise InvalidRequest(
            "an answer of a beam search cannot go on elsewhere; it starts over", param="resume"
        )


def _check_prompt(body: GenerateRequest, vocab_size: int) -> None:
    if not body.token_ids:
        raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
    _check_ids(body.token_ids, vocab_size, "the prompt")
    if len(body.cache_root) != NAME_BYTES:
        raise InvalidRequest(
            f"cache_root has {len(body.cache_root)} bytes; it must have {NAME_BYTES}",
            param="cache_root",
        )


def _check_ids(token_ids: list[int], vocab_size: int, whose: str) -> None:
    worst = max(token_ids, key=lambda token_id: abs(token_id - vocab_size // 2))
    if not 0 <= worst < vocab_size:
        raise InvalidRequest(
            f"{whose} has token id {worst}; allowed: 0 to {vocab_size - 1}", param="prompt"
        )


def _check_resume(body: GenerateRequest, vocab_size: int) -> None:
    """Each choice once, with something left to come; scores of the prompt were given before."""
    params, choices = body.sampling, [begun.choice for begun in body.resume]
    if not choices:
        return
    limit = params.n if body.mode is PrefillMode.LOCAL else 1
    if len(set(choices)) < len(choices) or len(choices) > limit or max(choices) >= params.n:
        raise InvalidRequest(
            f"choices {choices[:8]} are to go on; allowed: {limit} of {params.n}", param="resume"
        )
    if body.num_begun_tokens >= params.max_tokens or params.prompt_logprobs is not None:
        raise InvalidRequest(
            f"an answer of {body.num_begun_tokens} tokens is to go on, max_tokens is "
            f"{params.max_tokens}; of such an answer no token of the prompt is scored",
            param="resume",
        )
    for begun in body.resume:
        if begun.token_ids:
            _check_ids(begun.token_ids, vocab_size, f"choice {begun.choice}")
