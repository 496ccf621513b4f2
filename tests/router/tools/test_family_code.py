"""Answers as the families' own code reads them, and as ours does, cut at every character.

| ours | theirs |
|---|---|
| hermes | qwen-agent's prompt of Nous's kind; transformers' response template of Qwen3 |
| qwen3_coder | transformers' response template of Qwen3.5 |
| llama3_json, pythonic | llama-models' tool utilities |
| mistral | mistral-common, by version of its tokenizers |

DeepSeek's and FunctionGemma's have none that can be installed: their calls are compared with what
vLLM reads (benchmarks/compare_tool_calls.py), and with what DeepSeek's own template writes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.router.tools.own_code import told_by
from tests.router.tools.recorded_calls import (
    FROM_FAMILIES,
    MALFORMED,
    RECORDED,
    TOOLS,
    Call,
    Recorded,
    gathered,
    parsed,
    parsing,
)

pytestmark = pytest.mark.long
READ_BY = {
    "qwen": {"hermes": ("",)},
    "transformers": {"hermes": ("qwen3",), "qwen3_coder": ("qwen3_5",)},
    "llama": {"llama3_json": ("json",), "pythonic": ("python_list",)},
    "mistral": {"mistral": ("v3", "v7", "v11", "v13")},
}
"""By whose code: our formats, and the dialects that it has of each."""
WE_READ_MORE = {
    ("qwen", "</tool_call>é"): "a text may have the closing word: qwen-agent cuts there",
    ("transformers", "</tool_call>é"): "a text may have the closing word: the template cuts there",
    ("qwen", '"name": "weather"}'): "qwen-agent finds the name of a call without an end before all",
    ("qwen", '"{\\"city'): "arguments in a text are an object there, and a text to qwen-agent",
    ("transformers", '"{\\"city'): "the same",
    ("qwen", '{"name": "now"}'): "a call without arguments; transformers and vLLM read it too",
    ("transformers", '{"name": 3}'): "an error in one call is none in the next",
    ("transformers", "    </p>\n\n"): "Qwen writes one line break around a value, and no more",
    ("llama", "}; {"): "several calls; vLLM has them with a semicolon",
    ("llama", "1, true]"): "JSON's words in a list of Python's",
}
"""By who reads less, and what stands in such a text: why ours is right. All others are equal."""


def asked_of(family: str) -> list[tuple[Recorded, str]]:
    """Answers, with the dialect in which each is written."""
    return [
        (each, dialect)
        for each in (*RECORDED, *FROM_FAMILIES, *MALFORMED)
        for dialect in READ_BY[family].get(each.format, ())
        if each.format != "mistral" or is_of_version(each.text, dialect)
    ]


def is_of_version(text: str, version: str) -> bool:
    """Mistral's do not read each other's."""
    if "[CALL_ID]" in text:
        return version == "v11"
    return (version in ("v11", "v13")) == ("[ARGS]" in text or "[TOOL_CALLS]{" in text)


def ours_of(name: str, text: str) -> list[Call]:
    """The same in one piece and by single characters. That all other cuts are alike is what
    test_answer_parser.py shows, of the same answers."""
    calls = gathered(parsed(parsing(name), [text])[0])[0]
    assert gathered(parsed(parsing(name), list(text))[0])[0] == calls
    return calls


def calls_in(told: Any) -> list[Call]:
    return [] if isinstance(told, str) else [(name, arguments) for name, arguments in told]


@pytest.mark.parametrize("family", list(READ_BY))
def test_recorded_answers_are_the_calls_that_the_familys_own_code_reads(family: str) -> None:
    asked = asked_of(family)
    told = told_by(
        family,
        "read",
        [{"text": each.text, "dialect": dialect, "tools": TOOLS} for each, dialect in asked],
    )
    alike = set()
    for (each, dialect), theirs in zip(asked, map(calls_in, told), strict=True):
        mine = ours_of(each.format, each.text)
        if any(who == family and sign in each.text for who, sign in WE_READ_MORE):
            assert mine != theirs, f"now alike: {each.text}"
        else:
            assert mine == theirs, (dialect, each.text)
            alike |= {dialect} if mine else set()
    assert alike == {each for dialects in READ_BY[family].values() for each in dialects}


WORDS = ("a", "é☃", " b", '"', "\\", "\n", "{", "]", "</p>", "'", "😀", ",", ": ", "<", "[ARGS]")
PLAIN_WORDS = ("a", "b c", "é", "1.5", "; ", ", ", "x=1")
"""llama-models writes a text between quotes as it is."""


def random_value(chance: random.Random, words: tuple[str, ...], depth: int) -> Any:
    kind = chance.randrange(7 if depth else 5)
    if kind < 2:
        return "".join(chance.choices(words, k=chance.randrange(5)))
    if kind == 5:
        return [random_value(chance, words, depth - 1) for _ in range(chance.randrange(3))]
    if kind == 6:
        return {f"k{i}": random_value(chance, words, depth - 1) for i in range(chance.randrange(3))}
    return chance.choice((True, False, None, 0, -7, 2.5, 1e-9, 10**15))


def random_calls(
    chance: random.Random, words: tuple[str, ...], most_calls: int, depth: int
) -> list[Call]:
    return [
        (
            "weather",
            {f"p{i}": random_value(chance, words, depth) for i in range(chance.randrange(4))},
        )
        for _ in range(chance.randint(1, most_calls))
    ]


@pytest.mark.parametrize(
    ("family", "words", "most_calls", "depth"),
    [("qwen", WORDS, 3, 2), ("mistral", WORDS, 3, 2), ("llama", PLAIN_WORDS, 1, 0)],
)
def test_what_a_familys_own_code_writes_is_read_as_it_was_meant(
    family: str, words: tuple[str, ...], most_calls: int, depth: int
) -> None:
    chance = random.Random(5)
    asked = [
        {"calls": random_calls(chance, words, most_calls, depth), "dialect": dialect, "ours": ours}
        for ours, dialects in READ_BY[family].items()
        for dialect in dialects
        for _ in range(30)
    ]
    for request, told in zip(asked, told_by(family, "both", asked), strict=True):
        text, theirs = told
        assert ours_of(request["ours"], text) == request["calls"] == calls_in(theirs), text
