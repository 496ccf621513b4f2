"""What is known of a template from its text alone: how many steps it takes, or nothing at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from jinja2 import Undefined

from cluster.errors import InvalidRequest
from cluster.models.card import ModelCard
from cluster.models.text import chat_template, template_writing
from cluster.models.text.chat_template import JinjaChatTemplate
from cluster.models.text.template_cost import MAX_STEPS, cost_of
from cluster.models.text.template_files import load_chat_template
from cluster.models.text.template_sandbox import TemplateEnvironment
from tests.cluster.models.text.template_author import HOSTILE, Author

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA_3 = """{% set loop_messages = messages %}{% for message in loop_messages %}
{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' +
   message['content'] | trim + '<|eot_id|>' %}
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{ content }}{% endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>' }}{% endif %}"""
MISTRAL = """{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}{% endif %}
{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}{% endif %}
{% if message.role == 'user' %}{{ '[INST] ' + message.content.strip() + ' [/INST]' }}
{% else %}{{ message.content ~ eos_token }}{% endif %}{% endfor %}"""
QWEN_2_5 = """{%- if tools %}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
{%- else %}{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- elif message.role == 'assistant' %}{%- for call in message.tool_calls %}
{%- set call = call.function %}{{- call.arguments | tojson }}{%- endfor %}
{%- endif %}{%- endfor %}"""
KNOWN = {"chatml": CHATML, "llama 3": LLAMA_3, "mistral": MISTRAL, "qwen 2.5": QWEN_2_5}
UNKNOWN = {
    "a loop in a loop": "{% for a in messages %}{% for b in messages %}{% endfor %}{% endfor %}",
    "a loop over letters": "{% for a in messages[0].content %}x{% endfor %}",
    "letters of each": "{% for m in messages %}{% for a in m.content %}{% endfor %}{% endfor %}",
    "letters under another name": (
        "{% for m in messages %}{% set m = loop %}{% for a in m.previtem %}{% endfor %}{% endfor %}"
    ),
    "a list that is made": "{% set x = [1] * 9 %}{% for a in x %}x{% endfor %}",
    "messages that are none": "{% set messages = 'abc' * 9 %}{% for a in messages %}x{% endfor %}",
    "messages of a loop": (
        "{% for messages in messages %}{{ loop.index }}{% endfor %}"
        "{% set messages = messages[0].content %}{% for m in messages %}{% endfor %}"
    ),
    "tools that are made": "{% set tools = 'abc' %}{% for a in tools %}x{% endfor %}",
    "a range": "{% for a in range(9) %}x{% endfor %}",
    "a product": "{{ 'ab' * 99 }}",
    "a power": "{{ 9 ** 9 }}",
    "a format": "{{ '%9d' % 7 }}",
    "a macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a call of the loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "a namespace": "{% set ns = namespace(x='a') %}{{ ns.x }}",
    "a block that is set": "{% set x %}abc{% endset %}{{ x }}",
    "a filter": "{{ messages | map(attribute='content') | join }}",
    "a replacement": "{{ messages[0].content.replace('a', 'bbb') }}",
    "a long search": "{{ messages[0].content in messages[1].content }}",
    "a search before tools": (
        "{% if messages[0].content in messages[1].content and tools %}{% endif %}"
    ),
    "a strip of a client's letters": "{{ messages[0].content.strip(messages[1].content) }}",
    "another's exception": "{% set raise_exception = dict %}{{ raise_exception('a') }}",
    "twice as much, forty times": "{% set x = 'ab' %}" + "{% set x = x + x %}" * 40 + "{{ x }}",
    "as a list": "{% set x = ['ab'] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}",
    "in branches": "{% set x = 'ab' %}" + "{% if messages %}{% set x = x ~ x %}{% endif %}" * 40,
    "a huge integer": "{{ 10000000000000000000000000000 }}",
    "a list in a text": r"{% set x='\\' %}" + "{% set x=[x]|trim %}" * 40 + "{{ x }}",
    "a list that is written": "{% for m in messages %}{{ messages }}{% endfor %}",
    "a list that is trimmed": "{{ messages | trim }}",
    "a part of a list that is joined": "{{ '' ~ messages[1:] }}",
    "a message that is written": "{% for m in messages %}{{ m }}{% endfor %}",
    "a message by its place": "{{ messages[0] }}",
    "the loop that is written": "{% for m in messages %}{{ loop }}{% endfor %}",
    "a method that is written": "{% for m in messages %}{{ m.items }}{% endfor %}",
    "a part that no message has": "{% for m in messages %}{{ m.tool_calls }}{% endfor %}",
    "what a client may add": "{{ x }}",
    "what a client may add to a text": "{% set y = 'a' ~ x %}{{ y }}",
    "a list or a text": "{% if x %}{% set m = messages %}{% endif %}{% set m = 'a' %}{{ m }}",
    "a message or a text": "{% set m = 'a' %}{% for m in messages %}{{ m }}{% endfor %}",
    "lists that are compared": "{% if (messages or 1) == (messages[1:] or 1) %}x{% endif %}",
    "a format in a condition": "{% if messages[0].content % 9 == 'x' %}x{% endif %}",
    "a format of a client": "{% set x = messages[0].content %}{% if x % 9 == 'x' %}{% endif %}",
    "more than a reason": "{{ raise_exception('a', x=[messages]|trim) }}",
    "a list in a condition": "{% if [messages, messages] | trim %}x{% endif %}",
    "a search in a text": "{% if 'aaaaaaaab' in messages[0].content %}x{% endif %}",
    "a slice in a loop": "{% for m in messages %}{% set x = messages[1:] %}{% endfor %}",
}

STEPS = frozenset(("getattr", "getitem", "call", "call_binop"))


def is_known(source: str) -> bool:
    environment = TemplateEnvironment()
    return cost_of(environment.parse(source)) is not None


def chat(num_messages: int, content: str = "hi") -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": content} for i in range(num_messages)]


def pairs(messages: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


@pytest.mark.parametrize("name", KNOWN)
def test_what_well_known_templates_do_is_known(name: str) -> None:
    template = JinjaChatTemplate(KNOWN[name], {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.is_short(pairs(chat(5, "What is it? " * 20)))
    assert "hi" in template.render(chat(3))


def test_smollm2s_template_is_known(smollm2: ModelCard) -> None:
    template = load_chat_template(smollm2)
    assert template is not None
    assert template.is_short(pairs(chat(20, "What is it? " * 5)))


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_a_template_that_does_more_nothing_is_known(name: str) -> None:
    assert not is_known(UNKNOWN[name])


@pytest.mark.parametrize("name", KNOWN)
def test_a_chat_of_many_messages_or_of_much_text_is_not_short(name: str) -> None:
    template = JinjaChatTemplate(KNOWN[name], {})
    assert not template.is_short(pairs(chat(MAX_STEPS)))
    assert not template.is_short([("user", "a" * (1 << 20))])


def test_a_special_token_counts_as_text_of_the_template() -> None:
    special = {"bos_token": "s" * (1 << 20)}
    assert not JinjaChatTemplate(LLAMA_3, special).is_short(pairs(chat(2)))


@pytest.mark.parametrize("name", KNOWN)
def test_a_rendering_evaluates_no_more_than_its_bound_says(name: str) -> None:
    """Every attribute, item and call goes through the environment: all of them are steps."""
    template = JinjaChatTemplate(KNOWN[name], {"bos_token": "<s>", "eos_token": "</s>"})
    cost = template._cost
    assert cost is not None
    for num_messages in (1, 2, 7, 30):
        asked, num_chars = work_of(template, chat(num_messages))
        assert num_chars > 0
        assert 0 < asked <= cost.once_steps + cost.message_steps * num_messages


def work_of(template: JinjaChatTemplate, messages: list[dict[str, str]]) -> tuple[int, int]:
    """Calls of the environment, and characters of the text: none of one that is refused."""
    asked = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal asked
        code = frame.f_code
        if event == "call" and code.co_name in STEPS:
            asked += code.co_filename.endswith(("jinja2/sandbox.py", "template_sandbox.py"))

    outer, text = sys.getprofile(), ""
    sys.setprofile(count)
    with suppress(InvalidRequest):
        text = template.render(messages)
    sys.setprofile(outer)
    return asked, len(text)


def test_what_a_loop_sets_is_forgotten_by_its_next_round() -> None:
    """The bound counts on it: otherwise the text would double with every message."""
    source = "{% set x = 'ab' %}{% for m in messages %}{% set x = x + x %}{{ x }},{% endfor %}"
    assert is_known(source)
    texts = JinjaChatTemplate(source, {}).render(chat(30)).split(",")
    assert {len(text) for text in texts[:-1]} == {4}


@pytest.mark.parametrize(
    ("messages", "variables", "is_watched"),
    [
        (chat(3), None, False),
        (chat(3), {"x": 1}, True),
        ([{"role": "user", "content": "hi", "tool_calls": []}], None, True),
        ([{"role": "user", "content": ["hi"]}], None, True),
        (chat(MAX_STEPS), None, True),
    ],
)
def test_only_what_is_known_to_be_short_is_rendered_unwatched(
    messages: list[dict[str, Any]],
    variables: dict[str, Any] | None,
    is_watched: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched: list[None] = []

    @contextmanager
    def watch() -> Iterator[None]:
        watched.append(None)
        yield

    monkeypatch.setattr(chat_template, "template_budget", watch)
    source = "{% for m in messages %}{{ m.role }}{% endfor %}"
    JinjaChatTemplate(source, {}).render(messages, variables=variables)
    assert bool(watched) == is_watched


@pytest.mark.parametrize("seed", range(8))
def test_templates_written_at_random_go_no_further_than_is_known_of_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with every hostile content: what is written is a text, and no longer than its bound."""
    written: list[object] = []
    monkeypatch.setattr(template_writing, "ask_to_write", written.append)
    num_known = 0
    for number in range(100):
        source = Author(seed * 1000 + number).template()
        template = JinjaChatTemplate(source, {})
        if (cost := template._cost) is None:
            continue
        num_known += 1
        for content in HOSTILE:
            messages = chat(5, content * 10)
            assert template.is_short(pairs(messages)) == cost.is_short(5, 10 * len(content)), source
            steps = cost.once_steps + cost.message_steps * len(messages)
            asked, num_chars = work_of(template, messages)
            assert asked <= steps, source
            assert num_chars <= steps * max(10 * len(content), cost.longest_chars), source
    assert [value for value in written if not isinstance(value, Undefined)] == []
    assert num_known > 5
