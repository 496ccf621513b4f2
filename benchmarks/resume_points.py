"""Every answer taken up exactly after each of its tokens, by the engine alone with the real model.

Workers that are lost under streams are lost where it happens; here no place is left out.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from msgspec import structs

from cluster.generation import BegunChoice
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.offline.queue import Completion, generate
from engine.offline.replica import OfflineSetup, offline_engine

PROMPT_TOKENS, NEW_TOKENS = 60, 48
_SAMPLED = {"temperature": 0.9, "top_p": 0.95}
KINDS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {**_SAMPLED, "seed": 7, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    "n = 2": {**_SAMPLED, "seed": 11, "n": 2},
    "logprobs": {**_SAMPLED, "seed": 3, "logprobs": 2},
}


@dataclass(frozen=True, slots=True)
class Places:
    """How many were tried, and where the rest of an answer was another one."""

    num_tried: int
    wrong: list[str]


def try_every_place(num_tokens: int) -> Places:
    """After each of the first tokens of an answer of every kind; logprobs too must be the same."""
    engine, chance = offline_engine(OfflineSetup(prefix_cache=True)), random.Random(1)
    whole = [_request(kind, chance) for kind in KINDS]
    answers = generate(engine, whole)
    begun = [
        (after, body, answer)
        for body, answer in zip(whole, answers, strict=True)
        for after in range(1, num_tokens + 1)
    ]
    rests = generate(engine, [_resumed(body, answer, after) for after, body, answer in begun])
    wrong = [
        f"{body.request_id} after {after} tokens"
        for (after, body, answer), rest in zip(begun, rests, strict=True)
        if rest.tokens != {choice: tokens[after:] for choice, tokens in answer.tokens.items()}
    ]
    return Places(len(begun), wrong)


def _request(kind: str, chance: random.Random) -> GenerateRequest:
    sampling = {"max_tokens": NEW_TOKENS, "ignore_eos": True, **KINDS[kind]}
    return GenerateRequest(
        request_id=kind,
        token_ids=[chance.randrange(1000, 40_000) for _ in range(PROMPT_TOKENS)],
        sampling=SamplingParams(**sampling),  # type: ignore[arg-type]
        cache_root=bytes(16),
        timeout_ms=math.inf,
    )


def _resumed(body: GenerateRequest, answer: Completion, after: int) -> GenerateRequest:
    resume = [BegunChoice(choice, answer.token_ids(choice)[:after]) for choice in body.choices]
    return structs.replace(body, request_id=f"{body.request_id} {after}", resume=resume)
