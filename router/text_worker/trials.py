"""A text worker's part in grammars: its tokenizer for them is made when the first one comes."""

from __future__ import annotations

from functools import cached_property

from llguidance import LLTokenizer

from cluster.grammar import Grammar
from cluster.models.card import ModelCard
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.models.text.tokenizer import CheckpointTokenizer
from router.text.tokenizer import Tokenizer
from router.text_worker.grammar_trial import try_apart


class GrammarTrials:
    """Of one process."""

    def __init__(self, card: ModelCard, tokenizer: Tokenizer) -> None:
        """`tokenizer`: the card's."""
        self._card = card
        self._loaded = tokenizer if isinstance(tokenizer, CheckpointTokenizer) else None

    def run(self, grammar: Grammar) -> None:
        """See `try_apart`. Raises UnsupportedModel where no grammar can be followed."""
        try_apart(self._tokenizer, grammar)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return load_grammar_tokenizer(self._card, self._loaded)
