"""How the next token is chosen: one frozen record, checked where it enters."""

from __future__ import annotations

import msgspec

from cluster.beam_search import (
    MAX_BEAM_STOP_TOKENS,
    MAX_BEAMS,
    MAX_LENGTH_PENALTY,
    MIN_BEAMS,
    BeamSearch,
)
from cluster.errors import InvalidRequest
from cluster.grammar import Grammar, GrammarKind

MAX_CHOICES = 16
LEAST_REPETITION_PENALTY = 2.0**-7
"""Logits are divided by it: a smaller one could make them larger than any float."""
MAX_LOGPROBS = 20
MAX_STOP_TOKEN_IDS = 64
LONGEST_WRITTEN = 10**30
DRAWS_VERSION = 1
"""Which tokens a seed draws: raised whenever they are others, and no part of a pairing, as no block
depends on them. 0, of whoever tells none: one random number for a token's place, in the order of
the probabilities. 1: noise of each token's own (engine/sampling/random_numbers.py)."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one request; `protos/generation.proto` states each field's meaning.

    `seed` is set by the router before dispatch. Stop strings are not here: the router matches
    them on text. `max_tokens` is resolved by the router to a number that fits the context.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    logprobs: int | None = None
    seed: int = 0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    """What every choice must be; the same for all of them."""
    beams: BeamSearch | None = None
    """The choices are the `n` best of a search; None: each is sampled by itself."""

    @property
    def is_greedy(self) -> bool:
        """True when the likeliest token is taken and no randomness is used."""
        return self.temperature == 0.0

    @property
    def is_drawn(self) -> bool:
        """True when a seed decides: beams go by the model alone, as greedy answers do."""
        return not self.is_greedy and self.beams is None

    @property
    def num_sequences(self) -> int:
        """That decode side by side."""
        return self.n if self.beams is None else self.beams.width

    def check(self, vocab_size: int) -> None:
        """Raises InvalidRequest naming the first parameter out of range, value and limit."""
        _between("temperature", self.temperature, 0.0, 2.0)
        _between("top_k", self.top_k, 0, vocab_size)
        _between("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("repetition_penalty", self.repetition_penalty, LEAST_REPETITION_PENALTY, 10.0)
        _between("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _between("max_tokens", self.max_tokens, 1, 2**31)
        _between("min_tokens", self.min_tokens, 0, self.max_tokens)
        _between("n", self.n, 1, MAX_CHOICES)
        _between("seed", self.seed, 0, 2**64 - 1)
        _between("number of stop_token_ids", len(self.stop_token_ids), 0, MAX_STOP_TOKEN_IDS)
        if self.logprobs is not None:
            _between("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            _between("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        if self.grammar is not None:
            self._check_beside_grammar()
        if self.beams is not None:
            self._check_beside_beams(self.beams)
        for token_id in self.stop_token_ids:
            _between("stop_token_ids", token_id, 0, vocab_size - 1)
        for token_id, bias in self.logit_bias.items():
            _between("logit_bias", token_id, 0, vocab_size - 1)
            _between("logit_bias", bias, -100.0, 100.0)

    def _check_beside_grammar(self) -> None:
        """An answer ends where its grammar does."""
        assert self.grammar is not None, "whoever asks has looked"
        kind = self.grammar.kind
        form = "grammar of calls" if kind is GrammarKind.TOOLS else kind
        for name in ("min_tokens", "ignore_eos"):
            if getattr(self, name):
                raise InvalidRequest(
                    f"{name} does not go with a {form} to follow: "
                    f"the answer ends where that does; leave {name} out",
                    param=name,
                )

    def _check_beside_beams(self, beams: BeamSearch) -> None:
        """A search goes by the model's own distribution: nothing else changes it."""
        _between("beams.width", beams.width, MIN_BEAMS, MAX_BEAMS)
        _between("n", self.n, 1, beams.width)
        _between("length_penalty", beams.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        _between("number of stop_token_ids", len(self.stop_token_ids), 0, MAX_BEAM_STOP_TOKENS)
        for name, unused in _UNUSED_BY_BEAMS.items():
            if getattr(self, name) not in unused:
                asked = name
                if name == "grammar" and self.grammar is not None:
                    asked = self.grammar.param or name
                raise InvalidRequest(
                    f"{asked} does not go with a beam search, which follows the model's own "
                    f"distribution; leave {asked} out",
                    param=asked,
                )


_UNUSED_BY_BEAMS: dict[str, tuple[object, ...]] = {
    "temperature": (0.0, 1.0),
    "top_k": (0,),
    "top_p": (1.0,),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "logit_bias": ({},),
    "grammar": (None,),
}
"""By name: values that change nothing."""


def _between(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    """What is no number is not between any two; an integer may be larger than any float."""
    if not (value <= high and (value > low if low_open else value >= low)):
        allowed = f"{'(' if low_open else '['}{low}, {high}]"
        raise InvalidRequest(f"{name} is {in_words(value)}; allowed: {allowed}", param=name)


def in_words(number: float) -> str:
    """For messages: of a client's integer with more digits than anybody reads, or than Python
    writes, its size."""
    if isinstance(number, int) and abs(number) >= LONGEST_WRITTEN:
        return f"a number of {number.bit_length()} bits"
    return str(number)
