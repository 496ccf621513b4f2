"""A model's tokenizer, as grammars are followed by it."""

from __future__ import annotations

from cluster.grammar import Grammar, GrammarKind
from cluster.models.cache.store import ModelStore
from cluster.models.text.grammars import compiled, load_grammar_tokenizer
from cluster.models.text.tokenizer import load_tokenizer


def test_an_added_token_that_the_model_has_no_logit_for_is_left_out() -> None:
    """SmolLM2 with a token added for training, as Gemma 3 has one for images."""
    card = ModelStore().resolve("smollm2")
    loaded = load_tokenizer(card)
    loaded.backend.add_special_tokens(["[PAD]"])
    assert loaded.backend.get_vocab_size() == card.config.vocab_size + 1
    tokenizer = load_grammar_tokenizer(card, loaded)
    assert tokenizer.vocab_size == card.config.vocab_size
    matcher = compiled(tokenizer, Grammar('start: "[PAD]"', GrammarKind.LARK))
    ids = loaded.encode("[PAD") + loaded.encode("]")
    assert matcher.validate_tokens(ids) == len(ids)
