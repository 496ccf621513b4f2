"""What vLLM streams of a completion, read into the messages that our own workers send.

Recorded from 0.32 in `tests/router/vllm/recorded.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import WorkerLost
from cluster.terminal_text import plain
from protos import generation_pb2, worker_pb2
from router.vllm.wire import MAX_SAID_CHARS

_TOKEN_ID = "token_id:"
_REASONS = {
    None: generation_pb2.FINISH_REASON_UNSPECIFIED,
    "stop": generation_pb2.FINISH_REASON_STOP,
    "repetition": generation_pb2.FINISH_REASON_STOP,
    "length": generation_pb2.FINISH_REASON_LENGTH,
}


class StreamedLogprobs(msgspec.Struct):
    """One entry for each new token; the chosen one's is among its alternatives."""

    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class StreamedChoice(msgspec.Struct):
    """New tokens of a choice; `prompt_token_ids`, which repeat the prompt, are skipped unread."""

    index: int
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: StreamedLogprobs | None = None


class PromptDetails(msgspec.Struct):
    """With --enable-prompt-tokens-details only."""

    cached_tokens: int | None = None


class StreamedUsage(msgspec.Struct):
    """With the last chunk."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """0 where the server does not say."""
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details is not None else 0


class StreamedChunk(msgspec.Struct):
    """One event."""

    choices: list[StreamedChoice] = []
    usage: StreamedUsage | None = None
    error: Any = None
    """vLLM's own word that it has failed."""


_decoder = msgspec.json.Decoder(StreamedChunk)


def chunk_of(data: bytes) -> StreamedChunk:
    """Raises WorkerLost for what is no chunk, and for vLLM's own word that it has failed."""
    try:
        chunk = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise WorkerLost(f"sent what is no chunk of a completion: {cause}") from cause
    if chunk.error is not None:
        raise WorkerLost(f"failed: {plain(str(chunk.error)[:MAX_SAID_CHARS])}")
    return chunk


def tokens_of(choice: StreamedChoice, num_choices: int, num_top: int | None) -> worker_pb2.Tokens:
    """`num_top`: alternatives that were asked for, None for no logprobs. Raises WorkerLost for what
    no answer to this request can be."""
    if not 0 <= choice.index < num_choices:
        raise WorkerLost(f"sent choice {choice.index} of {num_choices}")
    if (reason := choice.finish_reason) not in _REASONS:
        raise WorkerLost(f"ended the request: {str(reason)[:40]}")
    try:
        tokens = _generated(choice, num_top)
    except (ValueError, IndexError, TypeError) as cause:
        raise WorkerLost(f"sent tokens that cannot be read: {cause}") from cause
    return worker_pb2.Tokens(
        choice=choice.index,
        tokens=tokens,
        finish_reason=_REASONS[reason],
    )


def _generated(choice: StreamedChoice, num_top: int | None) -> list[generation_pb2.GeneratedToken]:
    token_ids = choice.token_ids or []
    if num_top is None or not token_ids:
        return [generation_pb2.GeneratedToken(token_id=token_id) for token_id in token_ids]
    if (told := choice.logprobs) is None or len(told.token_logprobs) != len(token_ids):
        raise ValueError("their logprobs are missing")
    tops = told.top_logprobs or [None] * len(token_ids)
    return [
        generation_pb2.GeneratedToken(token_id=token_id, logprob=logprob, top=_top(top, num_top))
        for token_id, logprob, top in zip(token_ids, told.token_logprobs, tops, strict=True)
    ]


def _top(top: dict[str, float] | None, num_top: int) -> list[generation_pb2.TokenLogprob]:
    """Likeliest first: vLLM has the chosen one first, likely or not."""
    best = sorted((top or {}).items(), key=lambda item: -item[1])[:num_top]
    return [
        generation_pb2.TokenLogprob(token_id=int(name.removeprefix(_TOKEN_ID)), logprob=logprob)
        for name, logprob in best
    ]
