"""A text worker's part in grammars: its tokenizer for them is made once, where they come."""

from __future__ import annotations

from llguidance import LLTokenizer

from cluster.errors import GrammarsUnsupported, UnsupportedModel
from cluster.grammar import Grammar
from cluster.models.card import ModelCard
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.models.text.tokenizer import CheckpointTokenizer
from router.text.tokenizer import Tokenizer
from router.text_worker.grammar_trial import try_apart


class GrammarTrials:
    """Of one process. `load`, then `run` for each."""

    def __init__(self, card: ModelCard, tokenizer: Tokenizer) -> None:
        """`tokenizer`: the card's."""
        self._card = card
        self._loaded = tokenizer if isinstance(tokenizer, CheckpointTokenizer) else None
        self._tokenizer: LLTokenizer | None = None
        self._why_not = "the grammars of this process are not loaded"

    def load(self) -> None:
        """Seconds for a large vocabulary: before any limit of a task holds. A model that no grammar
        can be followed for is remembered."""
        try:
            self._tokenizer = load_grammar_tokenizer(self._card, self._loaded)
        except UnsupportedModel as error:
            self._why_not = error.message

    def run(self, grammar: Grammar) -> None:
        """See `try_apart`. Raises GrammarsUnsupported where no grammar can be followed."""
        if self._tokenizer is None:
            raise GrammarsUnsupported(self._why_not)
        try_apart(self._tokenizer, grammar)
