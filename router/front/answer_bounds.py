"""How much one request may ask to be told: tokens of an answer, and logprobs of its prompts."""

from __future__ import annotations

from cluster.errors import ContextTooLong, InvalidRequest
from cluster.sampling import SamplingParams, in_words
from router.front.generation_request import Wishes

MAX_PROMPT_LOGPROBS = 1 << 16
"""In one answer: about 4 MB of it, and 15 ms to encode at its end."""


def answer_tokens(wishes: Wishes, num_prompt_tokens: int, *, limit: int) -> int:
    """Raises InvalidRequest for nothing at all, and ContextTooLong."""
    room = limit - num_prompt_tokens
    if wishes.max_tokens is None:
        default = wishes.default_max_tokens
        return room if default is None else min(default, room)
    if wishes.max_tokens == 0:
        if not wishes.tells_prompt:
            raise InvalidRequest(
                "max_tokens is 0, which asks for nothing without echo or prompt_logprobs",
                param="max_tokens",
            )
        return 1  # the engine gives a first token with the prompt: nobody asked for it
    if wishes.max_tokens > room:
        raise ContextTooLong(
            f"the prompt has {num_prompt_tokens} tokens and max_tokens is "
            f"{in_words(wishes.max_tokens)}; this model's context is {limit} tokens: "
            f"ask for at most {room}",
            param="max_tokens",
        )
    return wishes.max_tokens


def check_scored(sampling: SamplingParams, num_prompt_tokens: int) -> None:
    """Raises InvalidRequest for more logprobs than one answer may hold; the tokens are those of all
    of its prompts."""
    if sampling.prompt_logprobs is None:
        return
    count = num_prompt_tokens * sampling.n * (1 + sampling.prompt_logprobs)
    if count > MAX_PROMPT_LOGPROBS:
        raise InvalidRequest(
            f"{num_prompt_tokens} prompt tokens with {sampling.prompt_logprobs} alternatives each "
            f"are {in_words(count)} logprobs; allowed: {MAX_PROMPT_LOGPROBS}: "
            "ask for fewer, or send less",
            param="prompt_logprobs",
        )
