"""The families' own chat templates: what is found in them, and that calls that they write are read.

TRL's wheel has them as their makers publish them; mistral-common makes Mistral's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from cluster.models.text.chat_template import JinjaChatTemplate
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.detection import Manners, manners_of
from router.tools.fitted_template import FittedTemplate, fitted
from tests.router.tools.own_code import own_code, told_by
from tests.router.tools.recorded_calls import KINDS, NAMES, TOOLS, Call, gathered

pytestmark = pytest.mark.long
FORMATS_OF = {
    **dict.fromkeys(("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"), "hermes"),
    **dict.fromkeys(("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8"), "qwen3_coder"),
    **dict.fromkeys(("nemotron_3_nano", "nemotron_3_super"), "qwen3_coder"),
    **dict.fromkeys(("llama3_1", "llama3_2"), "llama3_json"),
    **dict.fromkeys(("deepseekv3", "deepseek_r1_distill"), "deepseek_v3"),
}
"""In TRL's wheel."""
MISTRALS = ("v3", "v7", "v11", "v13", "v15")
UNREAD = ("gemma4_v5", "glm4moe", "gptoss", "lfm2_2_5")
"""Templates with tools whose calls no reader here reads: they are refused."""
PARIS: Call = ("weather", {"city": 'Paris "é"\n</p>', "days": 2, "where": {"x": [1, None]}})
NOW: Call = ("now", {})
ASK: dict[str, Any] = {"role": "user", "content": "Which weather?"}
EVERY = [*FORMATS_OF, *(f"mistral {version}" for version in MISTRALS)]


@cache
def mistrals() -> dict[str, str]:
    """All in one process."""
    sources = told_by("mistral", "template", [{"dialect": version} for version in MISTRALS])
    return {f"mistral {each}": source for each, source in zip(MISTRALS, sources, strict=True)}


def fit(name: str) -> tuple[FittedTemplate, Manners]:
    if name.startswith("mistral"):
        own_code()
        source = mistrals()[name]
    else:
        source = (own_code() / "trl" / "chat_templates" / f"{name}.jinja").read_text()
    manners = manners_of(source)
    template = JinjaChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    return fitted(template, manners.tools, "auto"), manners


def answered(calls: list[Call], content: str = "") -> dict[str, Any]:
    told = [
        {"type": "function", "id": f"abcdef00{i}", "function": {"name": name, "arguments": given}}
        for i, (name, given) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": told}


def resulted(calls: list[Call]) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "content": f"result {i}", "tool_call_id": f"abcdef00{i}", "name": name}
        for i, (name, _) in enumerate(calls)
    ]


@pytest.mark.parametrize("name", EVERY)
def test_the_format_is_found_in_the_template(name: str) -> None:
    made, _ = fit(name)
    assert made.tools is not None
    assert made.tools.name == FORMATS_OF.get(name, "mistral")
    assert made.one_call == name.startswith("llama")


@pytest.mark.parametrize("name", UNREAD)
def test_tools_of_other_families_are_refused_and_not_called_in_words_of_another(name: str) -> None:
    assert fit(name)[0].tools is None


@pytest.mark.parametrize("name", EVERY)
def test_calls_that_the_template_writes_are_read_as_they_were_meant(name: str) -> None:
    made, manners = fit(name)
    calls = [PARIS] if made.one_call else [PARIS, NOW]
    prompt = made.template.render([ASK], tools=TOOLS)
    whole = made.template.render([ASK, answered(calls)], tools=TOOLS, add_generation_prompt=False)
    is_continued = whole.startswith(prompt)
    answer = whole[len(prompt) if is_continued else whole.rindex("weather?") + len("weather?") :]
    thoughts = manners.thoughts
    parsing = Parsing(thoughts=thoughts, tools=made.tools, names=NAMES, kinds=KINDS)
    opens = is_continued and thoughts is not None and thoughts.is_open_after(prompt)
    for pieces in ([answer], list(answer)):
        parser = AnswerParser(parsing, is_thinking=opens)
        parts = [part for piece in pieces for part in parser.feed(piece)]
        assert gathered([*parts, *parser.finish()])[0] == calls, answer


@pytest.mark.parametrize("name", EVERY)
def test_an_answer_that_says_something_and_calls_keeps_its_calls_when_it_is_sent_back(
    name: str,
) -> None:
    made, _ = fit(name)
    calls = [PARIS]
    said = answered(calls, "I look it up.")
    done = {"role": "assistant", "content": "Rain."}
    chat = [ASK, said, *resulted(calls), done, {**ASK, "content": "And then?"}]
    told = made.template.render(chat, tools=TOOLS)
    told = told[told.rindex("Which weather?") :]
    assert 'Paris \\"é\\"' in told or 'Paris "é"' in told
    assert "result 0" in told and "Rain." in told and "And then?" in told
    assert ("I look it up." in told) == (name not in ("llama3_1", "llama3_2", "mistral v3"))


@pytest.mark.parametrize("content", ["", " ", "\n\n"])
@pytest.mark.parametrize("name", EVERY)
def test_calls_beside_blanks_are_kept_when_they_are_sent_back(name: str, content: str) -> None:
    made, _ = fit(name)
    said = {**answered([PARIS]), "content": content}
    told = made.template.render([ASK, said, *resulted([PARIS])], tools=TOOLS)
    told = told[told.rindex("Which weather?") :]
    assert 'Paris \\"é\\"' in told or 'Paris "é"' in told
    assert "result 0" in told
