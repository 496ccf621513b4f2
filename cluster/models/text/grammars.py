"""Grammars as llguidance follows them: one tokenizer of a model and one set of limits, for routers
that try grammars out and for engines that follow them.

Its matchers never raise: after every call that may have failed their error is to be asked for.
"""

from __future__ import annotations

import json

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from cluster.errors import InvalidRequest, UnsupportedModel
from cluster.grammar import Grammar
from cluster.models.card import ModelCard
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer

MAX_LEXER_STATES = 65_536
"""Of one compile of a grammar, for all answers that share it: half a kB each, measured with strings
of bounded lengths, of which each character takes four or more: 32 MB. With 16,384, four ordinary
answers of three strings of at most 200, 1,000 and 3,000 characters took all."""
LIMITS = LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
"""Beside it the library's own: 20 ms for a grammar's lexer, 14 ms of lexing and 2.5 ms of parsing
for one mask. What they do not see, a trial in a process of its own does."""
MASK_BUDGET_S = 0.05
"""Of a core, for one mask: what takes longer in a trial would take longer in an engine. The slowest
of 144 tokens of a nested schema took 0.4 ms (49,000 tokens), one of the usual tokens 0.01."""
MAX_ERROR_CHARS = 300
_SILENT = 0
_TOO_MANY_STATES = "too many states"


def load_grammar_tokenizer(
    card: ModelCard, loaded: CheckpointTokenizer | None = None
) -> LLTokenizer:
    """About half a second, of which most holds the interpreter; 35 MB for 49,000 tokens. It knows
    all ends of text that the card has. `loaded`: the card's, where it is there already. Raises
    BadCheckpoint or UnsupportedModel."""
    if not card.eos_token_ids:
        raise UnsupportedModel(
            f"{card.name} has no end of sequence, by which an answer with a grammar ends"
        )
    text = _without_tokens_from(card.config.vocab_size, loaded or load_tokenizer(card))
    try:
        return LLTokenizer(text, n_vocab=card.config.vocab_size, eos_token=list(card.eos_token_ids))
    except Exception as error:  # the library raises nothing narrower
        raise UnsupportedModel(
            f"the tokenizer of {card.name} cannot follow grammars: {error}"
        ) from error


def _without_tokens_from(vocab_size: int, tokenizer: CheckpointTokenizer) -> str:
    """The tokenizer without added tokens that the model has no logit for, as a [PAD] that was added
    for training, or Gemma 3's place for an image: they never come."""
    text: str = tokenizer.backend.to_str()
    if max(tokenizer.backend.get_added_tokens_decoder(), default=0) < vocab_size:
        return text
    whole = json.loads(text)
    whole["added_tokens"] = [each for each in whole["added_tokens"] if each["id"] < vocab_size]
    return json.dumps(whole, ensure_ascii=False)


def compiled(tokenizer: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """At its beginning. Raises InvalidRequest with what the library says. It may take long, hang or
    crash for what nobody has tried out; it does not hold the interpreter."""
    matcher = LLMatcher(tokenizer, grammar.text, log_level=_SILENT, limits=LIMITS)
    if error := matcher.get_error():
        raise InvalidRequest(
            f"the {grammar.kind} cannot be followed: {in_short(error)}", param=grammar.kind
        )
    return matcher


def failure_in_words(error: str) -> str:
    """Why an answer cannot go on, of which no other has a part in it: what the library says."""
    said = in_short(error)
    if _TOO_MANY_STATES in said:
        return (
            f"the answer alone takes more than {MAX_LEXER_STATES} states of its grammar's lexer; "
            "allow shorter strings (each character of one with a maxLength takes four or more), "
            "or write a simpler pattern"
        )
    return f"the answer's grammar cannot be followed further: {said}"


def in_short(error: str) -> str:
    """What the library says, for a message: on one line, and not all of a vocabulary."""
    line = " ".join(error.replace("<non-verbose/>", "").split())
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[:MAX_ERROR_CHARS]}..."
