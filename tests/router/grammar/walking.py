"""Answers that a grammar lets through, found by walking its masks: at random, and to an end."""

from __future__ import annotations

from functools import cache
from random import Random

import llguidance.numpy
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

MAX_TOKENS = 400
PATIENT_TOKENS = 40
"""After so many what closes comes first, wherever it may."""
_CLOSERS = ('"', "@", "}", "]", '"}', "]}", "}}", "}]", '"]', '":', ",")


@cache
def _closers(tokens: LLTokenizer) -> tuple[int, ...]:
    found = [tokens.tokenize_str(text) for text in _CLOSERS]
    return tuple(each[0] for each in found if len(each) == 1)


def answer_of(matcher: LLMatcher, tokens: LLTokenizer, chance: Random) -> str | None:
    """A whole answer; None: it came to no end. The matcher is consumed."""
    taken: list[int] = []
    ends = {0, tokens.eos_token}
    bits = llguidance.numpy.allocate_token_bitmask(1, tokens.vocab_size)
    while len(taken) < MAX_TOKENS and not matcher.is_stopped():
        is_late = len(taken) > PATIENT_TOKENS
        if matcher.is_accepting() and (is_late or chance.random() < 0.4):
            return tokens.decode_bytes(taken).decode()
        llguidance.numpy.fill_next_token_bitmask(matcher, bits)
        token_id = _chosen(
            bits[0], tokens, chance, ends, wants_end=is_late or chance.random() < 0.4
        )
        if token_id is None:
            return None
        assert matcher.consume_token(token_id), matcher.get_error()
        taken.append(token_id)
    return tokens.decode_bytes(taken).decode() if matcher.is_accepting() else None


def _chosen(
    words: npt.NDArray[np.int32],
    tokens: LLTokenizer,
    chance: Random,
    ends: set[int],
    *,
    wants_end: bool,
) -> int | None:
    if wants_end:
        for each in _closers(tokens):
            if words[each // 32] >> (each % 32) & 1:
                return each
    allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    usual = [each for each in (int(chance.choice(allowed)) for _ in range(8)) if each not in ends]
    return usual[0] if usual else next((int(e) for e in allowed if int(e) not in ends), None)
