"""A prompt's own tokens in an answer: as an echo with logprobs, and as vLLM's prompt_logprobs.

Long prompts with many alternatives are put into words a slice at a time, so that other requests go
on in between.
"""

from __future__ import annotations

from router.api.answers.bodies import CompletionLogprobs, PromptLogprob, PromptLogprobs
from router.front.events import ScoredPrompt, in_slices
from router.text.logprobs import LOWEST_LOGPROB, named, top_by_text
from router.text.tokenizer import Tokenizer


async def echo_logprobs(
    prompt: ScoredPrompt, tokenizer: Tokenizer, num_top: int
) -> CompletionLogprobs:
    """The prompt as OpenAI tells an answer: the first token has no logprob."""
    first = prompt.token_ids[0]
    told = CompletionLogprobs([tokenizer.token_text(first)], [None], [None], [0])
    stream = tokenizer.new_stream()
    offset_chars = len(stream.step(first))
    async for token in in_slices(prompt.scores):
        chosen = named(token.token_id, token.logprob, tokenizer)
        top = [named(i, logprob, tokenizer) for i, logprob in token.top[:num_top]]
        told.tokens.append(chosen.text)
        told.token_logprobs.append(chosen.logprob)
        told.top_logprobs.append(top_by_text(chosen, top))
        told.text_offset.append(offset_chars)
        offset_chars += len(stream.step(token.token_id))
    return told


async def prompt_logprobs(
    prompt: ScoredPrompt, tokenizer: Tokenizer, num_top: int
) -> PromptLogprobs:
    """vLLM's shape: the token of the prompt is always among the candidates."""
    told: PromptLogprobs = [None]
    async for token in in_slices(prompt.scores):
        ranked = [(i, p, rank) for rank, (i, p) in enumerate(token.top[:num_top], start=1)]
        candidates = {i: (p, rank) for i, p, rank in ranked}
        candidates.setdefault(token.token_id, (token.logprob, token.rank))
        told.append(
            {
                str(i): PromptLogprob(max(p, LOWEST_LOGPROB), rank, tokenizer.token_text(i))
                for i, (p, rank) in candidates.items()
            }
        )
    return told
