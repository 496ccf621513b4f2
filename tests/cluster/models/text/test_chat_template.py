from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadCheckpoint, InvalidRequest
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.text.chat_template import JinjaChatTemplate
from cluster.models.text.template_files import load_chat_template
from cluster.models.text.template_sandbox import GLOBAL_NAMES, TemplateEnvironment

CHATS = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi\n\n1. one"}],
    [
        {"role": "user", "content": "<|im_end|> {{ 7 * 7 }} {% if %}"},
        {"role": "assistant", "content": "ok & <b>"},
        {"role": "user", "content": "日本語 😀 "},
    ],
]
MESSAGES = [{"role": "user", "content": "abc"}]

LLAMA_STYLE = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{%- set ns = namespace(count=0) %}
{%- for message in messages %}
    {%- if message.role not in ['user', 'assistant'] %}
        {{- raise_exception('role ' ~ message.role) }}
    {%- endif %}
    {%- if loop.index0 > 50 %}{%- break %}{%- endif %}
    {%- set ns.count = ns.count + 1 %}
    {{- '<' + message['role'] + ':' ~ ns.count ~ '>' + message['content'].strip() | replace('a', 'b') }}
    {{- message | tojson(indent=2) }}{{ "%02d" % loop.index }}
{%- endfor %}
{%- generation %}{{ messages | map(attribute='role') | join(', ') | indent(2) }}{% endgeneration %}
{{ range(3) | list }}{{ eos_token if add_generation_prompt }}{{ tools is none }}
"""  # noqa: E501


def _render(source: str, **kwargs: Any) -> str:
    return JinjaChatTemplate(source, {}).render(MESSAGES, **kwargs)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("prompt", [True, False])
def test_smollm2s_chats_are_those_of_transformers(
    smollm2: ModelCard, transformers_tokenizer: Any, chat: list[dict[str, str]], prompt: bool
) -> None:
    expected = transformers_tokenizer.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=prompt
    )
    template = load_chat_template(smollm2)
    assert template is not None
    assert template.render(chat, add_generation_prompt=prompt) == expected


def test_without_a_system_message_the_models_own_is_used(smollm2: ModelCard) -> None:
    template = load_chat_template(smollm2)
    assert template is not None
    assert template.render(MESSAGES).startswith(
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM"
    )


@pytest.mark.parametrize("chat", CHATS)
def test_a_rich_template_renders_as_in_transformers(chat: list[dict[str, str]]) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    special = {"bos_token": "<s>", "eos_token": "</s>"}
    expected, _ = render_jinja_template(
        [chat], chat_template=LLAMA_STYLE, add_generation_prompt=True, **special
    )
    assert JinjaChatTemplate(LLAMA_STYLE, special).render(chat) == expected[0]


def test_a_template_may_refuse_messages_in_its_own_words() -> None:
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        _render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in 'ab' * 99999 %}{% for b in 'ab' * 99999 %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
        "{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
        "{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
        "{% endfor %}",
        "{% for i in range(99999) %}{% set x = ('ab' * 9999) | replace('a', 'ccc') %}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ [1] * 10 ** 10 }}",
        "{{ 10 ** 9999 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ ('a' | attr('format'))(1) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ 'a' | attr('zfill') (10 ** 10) }}",
        "{{ range(10 ** 9) | list }}",
        "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
        "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
        "{{ ('b' * 99999).join('a' * 99999) }}",
        "{{ ('a' * 99999) | join('b' * 99999) }}",
        "{{ ('\n' * 9999999) | indent(999999999) }}",
        "{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ strftime_now('%9999999d') }}",
    ],
)
def test_a_template_without_end_is_stopped(source: str) -> None:
    start = time.thread_time()
    with pytest.raises(InvalidRequest, match="cannot render|shorten"):
        _render(source)
    assert time.thread_time() - start < 5


def test_slow_steps_are_stopped_by_the_time_they_take() -> None:
    slow = "{% set t = 'ab' * 99999 %}{% for a in t %}{% set x = t | list | sort %}{% endfor %}"
    with pytest.raises(InvalidRequest, match=r"longer than 2\.0 s"):
        _render(slow)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ (raise_exception | attr('__globals__')).os }}",
        "{{ dict.__subclasses__() }}",
        "{{ undefined_name.field }}",
        "{{ 1 / 0 }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot render"):
        _render(source)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ 'a' | center(10 ** 9) }}", "{{" + "(" * 5000, "x" * (2 << 20)]
)
def test_a_template_that_does_not_compile_is_a_bad_checkpoint(source: str) -> None:
    with pytest.raises(BadCheckpoint, match="chat template"):
        JinjaChatTemplate(source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "[" * 20 + "'\\\\'" + "]|trim" * 20 + " }}",
        "{% set x = " + "[" * 20 + "'\\\\'" + "]|trim" * 20 + " %}",
        "{% if " + "[" * 20 + "'\\\\'" + "]|trim" * 20 + " %}{% endif %}",
    ],
)
def test_compiling_works_nothing_out(source: str) -> None:
    """Each `[..]|trim` writes a list: twice as many backslashes."""
    code = TemplateEnvironment().compile(source, raw=True)
    assert len(code) < 10_000


def test_a_template_is_given_what_is_stated_and_no_more() -> None:
    assert set(TemplateEnvironment().globals) == GLOBAL_NAMES


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ " + "not " * 150 + "x }}", "nested"),
        ("{{ 1" + " + 1" * 150 + " }}", "nested"),
        ("{% autoescape ['a']|trim %}{% endautoescape %}", "autoescape"),
        ("x" * ((1 << 16) + 1), "characters"),
        ("{{ " + "9" * 5000 + " }}", "does not compile"),
    ],
)
def test_what_would_be_work_for_the_compiler_is_a_bad_checkpoint(source: str, reason: str) -> None:
    with pytest.raises(BadCheckpoint, match=reason):
        JinjaChatTemplate(source, {})


def test_rendering_leaves_the_callers_trace_hook_and_messages_as_they_were() -> None:
    before, messages = sys.gettrace(), [{"role": "user", "content": "x"}]
    with pytest.raises(InvalidRequest):
        JinjaChatTemplate("{% for a in range(10) %}{{ 1 / 0 }}{% endfor %}", {}).render(messages)
    assert sys.gettrace() is before
    assert messages == [{"role": "user", "content": "x"}]


def test_a_thousand_messages_are_within_the_budget(smollm2: ModelCard) -> None:
    template = load_chat_template(smollm2)
    assert template is not None
    text = template.render([{"role": "user", "content": "y" * 2000}] * 1000)
    assert text.count("<|im_start|>user") == 1000


def test_a_folders_template_is_found_in_each_of_its_places(tiny_folder: Any) -> None:
    config = tiny_folder.files["tokenizer_config.json"]
    store = ModelStore(tiny_folder.path / "home")

    def rendered() -> str | None:
        template = load_chat_template(store.show(str(tiny_folder.write())))
        return None if template is None else template.render(MESSAGES)

    assert rendered() is None
    config["chat_template"] = "text {{ eos_token }}"
    assert rendered() == "text <|endoftext|>"
    config["chat_template"] = [{"name": "default", "template": "listed"}, {"name": "rag"}]
    assert rendered() == "listed"
    tiny_folder.files["chat_template.jinja"] = "file"
    assert rendered() == "file"


def test_a_gguf_without_a_template_has_none(tiny_gguf: Any, tmp_path: Path) -> None:
    card = ModelStore(tmp_path / "home").show(str(tiny_gguf.write(tmp_path / "tiny.gguf")))
    assert load_chat_template(card) is None
