"""Tokens at five positions, over thousands of seeds, against their exact distribution: with drafts
that are right or not, with and without a grammar.

The random numbers are those of fixed seeds: a test passes or fails once and for all.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
import torch
from msgspec import structs

from cluster.engine_options import EngineOptions
from cluster.grammar import Grammar
from engine.contract.commands import GenerateRequest
from engine.offline.queue import generate
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from tests.engine.sampling.grammars.late_masks import late_masks
from tests.engine.sampling.test_sampling_distribution import LIMIT, p_value
from tests.engine.step.engine_scenario import BLOCK_SIZE, request, small_replica
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.tiny_grammars import (
    EOS,
    GRAMMARS,
    VOCAB_SIZE,
    logits_after,
    tiny_tokenizer,
)

NUM_POSITIONS, NUM_SEEDS, AT_ONCE = 5, 1200, 24
TEMPERATURE = 1.7
PROMPT = [3, 1, 4]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def exact(body: GenerateRequest) -> list[dict[int, float]]:
    """The chance of each token at each position, by all ways to come there; of VOCAB_SIZE: that
    the answer is over."""
    ways: dict[tuple[int, ...], float] = {(): 1.0}
    found = []
    for _ in range(NUM_POSITIONS):
        chances: defaultdict[int, float] = defaultdict(float)
        longer: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for answer, chance in ways.items():
            if EOS[0] in answer:
                chances[VOCAB_SIZE] += chance
                continue
            logits = logits_after(body, list(answer)).double()
            for token, part in enumerate((logits / TEMPERATURE).softmax(-1).tolist()):
                if part:
                    chances[token] += chance * part
                    longer[(*answer, token)] += chance * part
        over = {answer: chance for answer, chance in ways.items() if EOS[0] in answer}
        ways = dict(longer) | over
        found.append(dict(chances))
    return found


def drawn(grammar: Grammar | None) -> list[Counter[int]]:
    """Of as many seeds, by an engine whose drafts are right in two of three tokens."""
    engine = Engine(
        small_replica(512, EOS),
        EngineOptions(block_size_tokens=BLOCK_SIZE, max_batch_tokens=256, max_num_seqs=AT_ONCE),
        clock=TickingClock(),
        grammars=GrammarCompiler(tiny_tokenizer),
        make_guesser=oracles(0.35, 7),
    )
    late_masks(engine, lambda row: False)
    bodies = [body_of(grammar, seed) for seed in range(NUM_SEEDS)]
    likely = generate(engine, [structs.replace(body_of(grammar, 0), request_id="likely")])
    guess = likely[0].token_ids()
    asked = [
        structs.replace(body, prediction=guess[: body.sampling.seed % 3 + 1] + [1, 2, 4, 0])
        for body in bodies
    ]
    batches = [asked[first : first + AT_ONCE] for first in range(0, NUM_SEEDS, AT_ONCE)]
    done = [each for batch in batches for each in generate(engine, batch)]
    tallies = [each.ended for each in done if each.ended is not None]
    tried = sum(ended.draft_tokens for ended in tallies)
    kept = sum(ended.accepted_draft_tokens for ended in tallies)
    assert 30 < kept < tried - 30
    counts = [Counter[int]() for _ in range(NUM_POSITIONS)]
    for each in done:
        for at, token in itertools.zip_longest(range(NUM_POSITIONS), each.token_ids()):
            counts[at][VOCAB_SIZE if token is None else token] += 1
    return counts


def body_of(grammar: Grammar | None, seed: int) -> GenerateRequest:
    return request(
        str(seed),
        PROMPT,
        max_tokens=NUM_POSITIONS,
        seed=seed,
        temperature=TEMPERATURE,
        grammar=grammar,
    )


@pytest.mark.parametrize("number", [None, 0, 1, 3])
def test_tokens_of_drafts_are_distributed_as_the_model_says(number: int | None) -> None:
    grammar = None if number is None else GRAMMARS[number]
    counts = drawn(grammar)
    chances = exact(body_of(grammar, 0))
    for seen, wanted in zip(counts, chances, strict=True):
        assert set(seen) <= set(wanted), "a token came that cannot come"
        assert p_value(seen, wanted) > LIMIT


def test_a_distribution_that_is_another_is_seen() -> None:
    counts, chances = drawn(None), exact(body_of(None, 0))
    turned = {token: chances[2][(token + 1) % VOCAB_SIZE] for token in range(VOCAB_SIZE)}
    assert p_value(counts[2], turned) < LIMIT
