"""What is no text is asked for before it is written as one."""

from __future__ import annotations

import json

import pytest
from jinja2.exceptions import SecurityError

from cluster.models.text.chat_template import JinjaChatTemplate
from cluster.models.text.template_budget import template_units
from cluster.models.text.template_writing import ask_to_write, text_of


def test_a_value_that_is_no_text_is_asked_for_before_it_is_written() -> None:
    """Were the walk wrong, this would still end it: 4 MiB are the most that a short chat writes."""
    source = r"{% set x='\\' %}" + "{% set x=[x]|trim %}" * 40 + "{{ x }}"
    with template_units(), pytest.raises(SecurityError, match="characters"):
        JinjaChatTemplate(source, {})._collect({})
    shared = "{% set x = ['a'] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}"
    with template_units(), pytest.raises(SecurityError, match="characters"):
        JinjaChatTemplate(shared, {})._collect({})


@pytest.mark.parametrize(
    "value", [["\\'\U000e0001"], {"\0": [1, None, 1.5, True]}, 10**80, [[], ()]]
)
def test_what_is_asked_for_is_as_long_as_what_is_written(value: object) -> None:
    with template_units():
        assert len(repr(value)) <= ask_to_write(value)
        assert len(json.dumps(value)) <= ask_to_write(value)
        assert text_of(value) == str(value)
