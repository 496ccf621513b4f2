"""What a grammar accepts, asked of the library itself with SmolLM2's tokens."""

from __future__ import annotations

from functools import cache

from llguidance import LLTokenizer

from cluster.grammar import Grammar
from cluster.models.cache.store import ModelStore
from cluster.models.text.grammars import compiled, load_grammar_tokenizer


@cache
def tokenizer() -> LLTokenizer:
    """Loaded once: half a second."""
    return load_grammar_tokenizer(ModelStore().resolve("smollm2"))


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the text is a whole answer. Raises InvalidRequest for what cannot be compiled."""
    matcher = compiled(tokenizer(), grammar)
    token_ids = tokenizer().tokenize_str(text)
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()
