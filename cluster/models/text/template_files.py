"""Where a checkpoint's chat templates lie: one, or several by name.

chat_template.jinja, additional_chat_templates/NAME.jinja    a folder, as it is written today
tokenizer_config.json: a text, or a list of named ones       as it was written before
tokenizer.chat_template, tokenizer.chat_template.NAME        GGUF
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import BadCheckpoint
from cluster.logs import get_logger
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.fields import Fields
from cluster.models.files.json_file import read_optional_json
from cluster.models.gguf.header import read_gguf_header
from cluster.models.hf.card import MORE_TEMPLATES
from cluster.models.hf.special_tokens import special_tokens_of
from cluster.models.text.chat_template import JinjaChatTemplate
from cluster.models.text.named_templates import DEFAULT, RAG, TOOL_USE, NamedTemplates

_GGUF_SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_GGUF_TEMPLATE = "tokenizer.chat_template"
CheckpointTemplate = JinjaChatTemplate | NamedTemplates
_log = get_logger("model")


def load_chat_template(card: ModelCard) -> CheckpointTemplate | None:
    """None when the checkpoint has none (a base model). Raises BadCheckpoint for a broken one."""
    if card.format is CheckpointFormat.GGUF:
        sources, special = _of_gguf(card)
    else:
        sources, special = _of_folder(card), special_tokens_of(card.metadata_path)
    if not sources:
        return None
    where = str(card.metadata_path)
    default = sources[_default_of(sources, where)]
    template = JinjaChatTemplate(default, special, where=where)
    if sources.get(TOOL_USE, default) == default:
        return template
    return NamedTemplates(template, JinjaChatTemplate(sources[TOOL_USE], special, where=where))


def _default_of(sources: Mapping[str, str], where: str) -> str:
    """The name of the one that plain chats are rendered by: none that is for tools, where there is
    another."""
    if DEFAULT in sources:
        return DEFAULT
    name = min(sources, key=lambda each: each == TOOL_USE)
    _log.warning("a checkpoint names no default chat template", checkpoint=where, taken=name)
    return name


def _of_gguf(card: ModelCard) -> tuple[dict[str, str], dict[str, str]]:
    header = read_gguf_header(card.metadata_path)
    fields = Fields(header.metadata, str(header.path))
    tokens = fields.texts("tokenizer.ggml.tokens")
    special = {}
    for name, key in _GGUF_SPECIAL.items():
        token_id = fields.integer(f"tokenizer.ggml.{key}", len(tokens))
        if 0 <= token_id < len(tokens):
            special[name] = tokens[token_id]
    keys = {DEFAULT: _GGUF_TEMPLATE, TOOL_USE: f"{_GGUF_TEMPLATE}.{TOOL_USE}"}
    return {name: fields.text(key) for name, key in keys.items() if key in fields}, special


def _of_folder(card: ModelCard) -> dict[str, str]:
    """By name. Files of their own before tokenizer_config.json."""
    folder = card.metadata_path
    stated = read_optional_json(folder / "tokenizer_config.json").get("chat_template")
    found = _stated(stated, folder)
    files = {DEFAULT: folder / "chat_template.jinja", TOOL_USE: folder / MORE_TEMPLATES[TOOL_USE]}
    if files[DEFAULT].is_file():
        found = {}
    return found | {
        name: path.read_text(encoding="utf-8") for name, path in files.items() if path.is_file()
    }


def _stated(value: Any, folder: Path) -> dict[str, str]:
    """By name, without those that want documents. Raises BadCheckpoint for what is neither a text
    nor a list of named ones."""
    if isinstance(value, list):
        items = [item for item in value if isinstance(item, Mapping)]
        named = {item.get("name"): item.get("template") for item in items}
        return {
            name: source
            for name, source in named.items()
            if isinstance(name, str) and isinstance(source, str) and name != RAG
        }
    if value is not None and not isinstance(value, str):
        raise BadCheckpoint(f"{folder}: chat_template is not a text")
    return {} if value is None else {DEFAULT: value}
