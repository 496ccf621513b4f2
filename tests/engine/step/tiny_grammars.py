"""Grammars over seven tokens, and what an answer in one has to be, with no engine at all."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from cluster.grammar import Grammar, GrammarKind
from cluster.models.text.grammars import compiled
from engine.contract.commands import GenerateRequest
from engine.process.fake_runner import fake_logits
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler
from router.grammar.lark_terms import up_to_any, without_any

TOKENS = ["a", "b", "c", "ab", "bc", "abc"]
EOS = (6,)
VOCAB_SIZE = 7
GRAMMARS = [
    Grammar(f"start: {rule}", GrammarKind.LARK)
    for rule in (
        "/[abc]{3,12}/",
        "/(abc)+/",
        '"abcab" /[bc]+/',
        "/a(bc|cb)*c?/",
        '("ab" | "ca")+ "bbb" "c"*',
        '"ccccacccc"',
    )
]
"""Free ones, and some in which much is forced."""
FREE_TO_BOUND = [
    Grammar("\n".join(rules), GrammarKind.LARK)
    for rules in (
        ["start: thought form", *up_to_any("cc", "thought"), 'form: ("ab" | "bca")+ "c"'],
        ['start: ("b" thought)? /(ac|bb)+/', *up_to_any("ca", "thought")],
        [
            "start: (part)* TAIL",
            f"TAIL: {without_any(['cb'])}",
            'part: begin ("ab" | "cca" "c"?) "bb"',
            *up_to_any("cb", "begin"),
        ],
    )
]
"""As the router makes them: a form after a thought, one that may begin with a thought, and text
with parts. The word that ends the free part lies across tokens, or in one."""
BOUND_BEHIND = ("cc", "ca", "cb")
"""Of each of them, the word."""
ADAPTERS = ("1", "2", "3")


@cache
def tiny_tokenizer() -> LLTokenizer:
    """Of three letters, two of their pairs, and all of them."""
    text: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": EOS[0],
                "content": "<end>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(TOKENS)},
            "merges": ["a b", "b c", "ab c"],
        },
    }
    return LLTokenizer(json.dumps(text), n_vocab=VOCAB_SIZE, eos_token=list(EOS))


@cache
def _beginning(grammar: Grammar) -> LLMatcher:
    return compiled(tiny_tokenizer(), grammar)


def allowed_after(grammar: Grammar, answer: list[int]) -> list[int]:
    """Tokens that may come, by a matcher that was fed those alone."""
    matcher = _beginning(grammar).deep_copy()
    assert not answer or matcher.consume_tokens(answer)
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    assert not matcher.is_error(), matcher.get_error()
    return [i for i in range(VOCAB_SIZE) if bits[i // 8] >> i % 8 & 1]


def adapted(logits: torch.Tensor, adapter: str) -> torch.Tensor:
    """[VOCAB_SIZE]: what an adapter makes of them; empty: as they are."""
    return logits.roll(int(adapter)) if adapter else logits


def logits_after(body: GenerateRequest, answer: list[int]) -> torch.Tensor:
    """float32 [VOCAB_SIZE]: of the model without weights, held to the request's grammar."""
    logits = adapted(fake_logits([*body.token_ids, *answer], VOCAB_SIZE), body.adapter)
    if (grammar := body.sampling.grammar) is not None:
        allowed = allowed_after(grammar, answer)
        banned = [i for i in range(VOCAB_SIZE) if i not in allowed]
        logits[banned] = -torch.inf
    return logits


def expected_answer(body: GenerateRequest, choice: int = 0) -> list[int]:
    """What the request gives when it is alone in the world."""
    sampler, answer = Sampler(EOS), list[int]()
    while len(answer) < body.sampling.max_tokens and EOS[0] not in answer:
        row = SamplingRow(
            logit_row=0,
            params=body.sampling,
            choice=choice,
            token_ids=[*body.token_ids, *answer],
            num_prompt=len(body.token_ids),
        )
        [token] = sampler.sample(logits_after(body, answer)[None], [row])
        assert token is not None
        answer.append(token.token_id)
    return answer
