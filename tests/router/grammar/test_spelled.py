"""Text of a grammar that reads like a special token can be followed, and never is that token."""

from __future__ import annotations

from random import Random
from time import thread_time

import pytest

from cluster.grammar import Grammar, GrammarKind
from cluster.models.text.grammars import compiled
from router.grammar.json_schema import schema_grammar, schema_in
from router.grammar.lark import choice_grammar, choices_in, lark_grammar, regex_grammar
from router.grammar.spelled import SpecialTexts
from router.grammar.structural_tag import structural_tag_grammar
from router.grammar.thought_first import after_thought
from router.tools.thoughts import ThoughtFormat
from tests.router.grammar.matching import tokenizer
from tests.router.grammar.walking import answer_of

SPECIAL = SpecialTexts(["<|im_start|>", "<|im_end|>", ""])
CONST = {"const": {"<|im_start|>": "<|im_end|>"}}
CHOICES = ["a <|im_start|> b", "a <|im_end|>"]
TAG = {
    "triggers": ["a"],
    "structures": [{"begin": "a<|im_start|>", "schema": {"const": 1}, "end": "<|im_end|>"}],
}
GRAMMARS = {
    "a schema": schema_grammar(CONST, param="s"),
    "an expression": regex_grammar(r"x<\|im_end\|>y{1,3}", param="s"),
    "a choice": choice_grammar(CHOICES, param="s"),
    "Lark": lark_grammar('start: "{" other\nother: "<|im_start|>" | "<|im_end|>" "}"', param="s"),
    "a structural tag": structural_tag_grammar(TAG, param="s"),
}


def walked(grammar: Grammar, turn: int) -> str | None:
    """None: it came to no end, or the library refused what it had let through."""
    try:
        return answer_of(compiled(tokenizer(), grammar), tokenizer(), Random(turn))
    except AssertionError:
        return None


@pytest.mark.parametrize("name", GRAMMARS)
def test_such_a_grammar_is_followed_to_its_end(name: str) -> None:
    grammar = SPECIAL.spelled(GRAMMARS[name])
    assert grammar.kind is GRAMMARS[name].kind and grammar.param == "s"
    answers = [walked(grammar, turn) for turn in range(4)]
    assert None not in answers
    if name != "a structural tag":  # whose text is free
        assert all("<|im_" in str(answer) for answer in answers)


def test_as_it_is_the_library_fails_there() -> None:
    assert None in [walked(GRAMMARS["a schema"], turn) for turn in range(4)]


def test_one_after_a_thought_is_followed_too() -> None:
    made = after_thought(GRAMMARS["a schema"], ThoughtFormat("<think>", "</think>"), {})
    assert made.in_thought is not None
    matcher = compiled(tokenizer(), SPECIAL.spelled(made.in_thought))
    assert matcher.consume_tokens(tokenizer().tokenize_str("Hm</think>"))
    answer = answer_of(matcher, tokenizer(), Random(1))
    assert answer is not None and "<|im_start|>" in answer


def test_all_others_are_as_they_were_and_other_servers_find_what_was_asked() -> None:
    plain = choice_grammar(["<|other|>"], param="s")
    assert SPECIAL.spelled(plain) is plain and SpecialTexts().spelled(plain) is plain
    with_options = replace_text(plain, '%llguidance {}\nstart: "<|im_end|>"')
    assert SPECIAL.spelled(with_options) is with_options
    assert schema_in(SPECIAL.spelled(GRAMMARS["a schema"]))[0] == CONST
    assert choices_in(SPECIAL.spelled(GRAMMARS["a choice"])) == CHOICES


def found_in(words: list[str], text: str) -> bool:
    grammar = Grammar(text, GrammarKind.LARK)
    return SpecialTexts(words).spelled(grammar) is not grammar


def test_one_of_many_texts_is_found_wherever_it_stands() -> None:
    chance = Random(5)
    for _ in range(300):
        words = ["".join(chance.choices("ab<|.", k=chance.randint(1, 5))) for _ in range(8)]
        text = "".join(chance.choices("ab<|.", k=30))
        assert found_in(words, text) == any(word in text for word in words), (words, text)


def test_texts_that_begin_alike_are_not_tried_one_after_another() -> None:
    """Compared one by one they take a second: a client would hold up the loop."""
    special = SpecialTexts(f"<SPECIAL_{number}>" for number in range(6000))
    grammar = Grammar("start: /" + "<SPECIAL_" * 3600 + "/", GrammarKind.LARK)
    began_s = thread_time()
    assert special.spelled(grammar) is grammar
    assert thread_time() - began_s < 0.05  # of a core: it takes 1 ms


def replace_text(grammar: Grammar, text: str) -> Grammar:
    return Grammar(text, grammar.kind, grammar.param)
