"""Whether a system says what the unquantized model says: real questions, greedy."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cluster.models.chat_template import load_chat_template
from cluster.models.store import ModelStore
from cluster.models.tokenizer import load_tokenizer
from engine.offline import generate
from engine.offline_replica import OfflineSetup, greedy_request, offline_engine

QUESTIONS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper.",
    "Explain how rain forms, in simple words.",
    "List three uses of copper.",
)
NEW_TOKENS = 32

Answer = Callable[[list[list[int]], int], tuple[float, list[list[int]]]]


def agreement(answer: Answer) -> str:
    """How many tokens each answer shares with the unquantized model's before the first other one.

    After that the two talk about different texts: only what comes before says something.
    """
    counts = []
    for prompt, reference in zip(prompts(), unquantized(), strict=True):
        _, (tokens,) = answer([prompt], NEW_TOKENS)
        pairs = enumerate(zip(tokens, reference, strict=True))
        counts.append(next((i for i, (a, b) in pairs if a != b), NEW_TOKENS))
    if counts[0] < 8:
        raise RuntimeError(f"leading tokens as unquantized: {counts}; this is another model's text")
    return (
        f"leading tokens as the unquantized model's: {', '.join(map(str, counts))} of {NEW_TOKENS}"
    )


@functools.cache
def prompts() -> list[list[int]]:
    """The questions as chat prompts."""
    card = ModelStore().resolve("smollm2")
    template, tokenizer = load_chat_template(card), load_tokenizer(card)
    assert template is not None
    texts = (template.render([{"role": "user", "content": text}]) for text in QUESTIONS)
    return [tokenizer.encode(text, add_special=False) for text in texts]


@functools.cache
def unquantized() -> list[list[int]]:
    """Answers of this engine in float32, which the tests hold to transformers' token for token."""
    engine = offline_engine(OfflineSetup(dtype="float32", weights="full"))
    requests = [greedy_request(str(i), ids, NEW_TOKENS) for i, ids in enumerate(prompts())]
    return [completion.token_ids() for completion in generate(engine, requests)]
