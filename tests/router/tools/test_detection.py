"""Which formats a template speaks of."""

from __future__ import annotations

import pytest

from cluster.common_options import TOOL_FORMATS
from router.tools import detection
from router.tools.detection import Manners, manners_of
from router.tools.formats import FORMATS


def test_the_options_words_are_the_formats() -> None:
    assert ("auto", "none", *FORMATS) == TOOL_FORMATS


def test_every_format_has_a_sign_by_which_a_template_is_known() -> None:
    assert {found.name for _, found in detection._SIGNS if found is not None} == set(FORMATS)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<tool_call>' }}", "hermes"),
        ("{{ '<tool_call>\n<function=' }}", "qwen3_coder"),
        ("{{ '[TOOL_CALLS]' }}", "mistral"),
        ("{{ '<｜tool▁calls▁begin｜>' }}", "deepseek_v3"),
        ("Environment: ipython", "llama3_json"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("<|python_start|>[func_name1(params_name1=params_value1)]", "pythonic"),
        ("Environment: ipython {{ '<|python_start|>' }}", None),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", None),
        ("<seed:tool_call>\n<function=example_function_name>", None),
        ("<start_function_call>", "gemma"),
        ("{{ messages }}", None),
    ],
)
def test_a_template_says_how_its_model_calls(template: str, name: str | None) -> None:
    found = manners_of(template).tools
    assert (None if found is None else found.name) == name


def test_an_option_counts_more_than_the_template() -> None:
    assert manners_of("<tool_call>", tools="none").tools is None
    assert manners_of("<tool_call>", tools="mistral").tools is FORMATS["mistral"]
    assert manners_of("</think>", reasoning="none").thoughts is None
    assert manners_of(None) == Manners()


def test_words_that_are_special_tokens_are_known_to_be_hidden() -> None:
    hidden = manners_of("[TOOL_CALLS] [/THINK]", {"[TOOL_CALLS]": 5, "</s>": 2})
    assert hidden.special == {"[TOOL_CALLS]": 5}
    assert hidden.hides_calls and not hidden.hides_thoughts
    assert not manners_of("<tool_call>", {"</s>": 2}).hides_calls
