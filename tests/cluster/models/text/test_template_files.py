"""Where checkpoints have their templates, and which of several a chat is rendered by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster.errors import BadCheckpoint
from cluster.models.cache.store import ModelStore
from cluster.models.text.named_templates import NamedTemplates
from cluster.models.text.template_files import CheckpointTemplate, load_chat_template

MESSAGES = [{"role": "user", "content": "abc"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
PLAIN = "plain {{ messages[0].content }}{{ bos_token }}"
WITH_TOOLS = "{% for tool in tools %}<tool_call>{{ tool.function.name }}{% endfor %}"
LISTED = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": WITH_TOOLS}]
WITH_CALLS = f"<tools>{WITH_TOOLS}</tools>" + "{{ messages }}"
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
CALLED = [
    [{"role": "assistant", "content": "", "tool_calls": [CALL]}],
    [{"role": "tool", "content": "12"}],
]


def loaded(tiny_folder: Any) -> CheckpointTemplate:
    store = ModelStore(tiny_folder.path / "home")
    template = load_chat_template(store.show(str(tiny_folder.write())))
    assert template is not None
    return template


def check_both(template: CheckpointTemplate) -> None:
    assert isinstance(template, NamedTemplates)
    assert {"tools", "bos_token"} <= template.takes and "<tool_call>" in template.source
    assert template.render(MESSAGES).startswith("plain abc")
    assert template.render(MESSAGES, tools=TOOLS) == "<tool_call>f"
    assert template.is_short([("user", "abc")])


def test_a_chat_with_tools_is_rendered_by_the_template_of_that_name(tiny_folder: Any) -> None:
    tiny_folder.files["tokenizer_config.json"]["chat_template"] = LISTED
    check_both(loaded(tiny_folder))


def test_the_template_of_tools_may_be_a_file_in_a_folder(tiny_folder: Any) -> None:
    folder = Path(tiny_folder.write())
    (folder / "chat_template.jinja").write_text(PLAIN)
    store = ModelStore(tiny_folder.path / "home")
    before = store.show(str(folder))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(WITH_TOOLS)
    after = store.show(str(folder))
    template = load_chat_template(after)
    assert template is not None
    check_both(template)
    assert before.tokenizer_digest == after.tokenizer_digest, "it joins whom an older one has it of"


def test_a_gguf_has_it_under_a_key_of_its_own(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["tokenizer.chat_template"] = PLAIN
    tiny_gguf.metadata["tokenizer.chat_template.tool_use"] = WITH_TOOLS
    card = ModelStore(tmp_path / "home").show(str(tiny_gguf.write(tmp_path / "tiny.gguf")))
    template = load_chat_template(card)
    assert template is not None
    check_both(template)


@pytest.mark.parametrize(
    ("names", "default"),
    [
        (("tool_use",), "tool_use"),
        (("rag", "tool_use"), "tool_use"),
        (("rag", "tool_use", "chat", "other"), "chat"),
    ],
)
def test_a_list_without_a_default_has_the_first_that_is_for_chats(
    tiny_folder: Any, names: tuple[str, ...], default: str
) -> None:
    listed = [{"name": name, "template": f"{name} {{{{ messages }}}}"} for name in names]
    tiny_folder.files["tokenizer_config.json"]["chat_template"] = listed
    with capture_logs() as lines:
        template = loaded(tiny_folder)
    assert [line["taken"] for line in lines if "taken" in line] == [default]
    assert template.render(MESSAGES).startswith(default)
    assert template.render(MESSAGES, tools=TOOLS).startswith("tool_use")


def test_a_template_for_documents_renders_no_chat(tiny_folder: Any) -> None:
    listed = [{"name": "rag", "template": "{{ documents }}"}]
    tiny_folder.files["tokenizer_config.json"]["chat_template"] = listed
    store = ModelStore(tiny_folder.path / "home")
    assert load_chat_template(store.show(str(tiny_folder.write()))) is None


@pytest.mark.parametrize("more", CALLED)
def test_calls_of_a_chat_are_rendered_by_the_template_of_tools_also_where_none_are_offered(
    tiny_folder: Any, more: list[dict[str, Any]]
) -> None:
    listed = [LISTED[0], {"name": "tool_use", "template": WITH_CALLS}]
    tiny_folder.files["tokenizer_config.json"]["chat_template"] = listed
    template = loaded(tiny_folder)
    text = template.render([*MESSAGES, *more])
    assert text.startswith("<tools></tools>") and str(more[-1]) in text
    assert template.render(MESSAGES).startswith("plain abc")


def test_what_is_no_text_is_a_bad_checkpoint(tiny_folder: Any) -> None:
    tiny_folder.files["tokenizer_config.json"]["chat_template"] = {"default": PLAIN}
    with pytest.raises(BadCheckpoint, match="not a text"):
        loaded(tiny_folder)
