"""Whether a system says what the unquantized model says: real questions, greedy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from cluster.generation import GeneratedToken
from cluster.models.cache.store import ModelStore
from cluster.models.text.template_files import load_chat_template
from cluster.models.text.tokenizer import load_tokenizer
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, greedy_request, offline_engine

QUESTIONS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper.",
    "Explain how rain forms, in simple words.",
    "List three uses of copper.",
)
NEW_TOKENS = 32

LARGEST_GAP = 3.0
"""Nats. Rounding does not turn round a lead of this size; another model or a fault does."""

Answer = Callable[[list[list[int]], int], tuple[float, list[list[int]]]]


def agreement(answer: Answer) -> str:
    """Where each answer leaves the unquantized model's, and how near the two tokens were there.

    After that the two talk about different texts: only what comes before says something. Raises
    RuntimeError for a token that the unquantized model finds much less likely than its own.
    """
    words = []
    for prompt, reference in zip(prompts(), unquantized(), strict=True):
        _, (token_ids,) = answer([prompt], NEW_TOKENS)
        pairs = enumerate(zip(token_ids, reference, strict=True))
        left = next((i for i, (found, token) in pairs if found != token.token_id), None)
        if left is None:
            words.append("all")
            continue
        gap = _gap(reference[left], token_ids[left])
        if gap > LARGEST_GAP:
            raise RuntimeError(f"token {left} is {gap:.2f} nats behind: this is another model")
        words.append(f"{left} ({gap:.2f})")
    return (
        f"tokens as the unquantized model's, of {NEW_TOKENS} (nats between the two where they "
        f"part): {', '.join(words)}"
    )


def _gap(likeliest: GeneratedToken, token_id: int) -> float:
    assert likeliest.logprob is not None
    return likeliest.logprob - dict(likeliest.top).get(token_id, -math.inf)


@functools.cache
def prompts() -> list[list[int]]:
    """The questions as chat prompts."""
    card = ModelStore().resolve("smollm2")
    template, tokenizer = load_chat_template(card), load_tokenizer(card)
    assert template is not None
    texts = (template.render([{"role": "user", "content": text}]) for text in QUESTIONS)
    return [tokenizer.encode(text, add_special=False) for text in texts]


@functools.cache
def unquantized() -> list[list[GeneratedToken]]:
    """Answers of this engine in float32, which the tests hold to transformers' token for token."""
    engine = offline_engine(OfflineSetup(dtype="float32", weights="full"))
    requests = [
        greedy_request(str(i), ids, NEW_TOKENS, logprobs=20) for i, ids in enumerate(prompts())
    ]
    return [completion.tokens[0] for completion in generate(engine, requests)]
