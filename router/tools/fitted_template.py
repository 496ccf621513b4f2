"""A checkpoint's chat template as a chat with tools needs it, and how its model then calls.

| the template | tools are | calls are |
|---|---|---|
| takes `tools` | its own | of the format that was found, or said |
| takes none, but writes calls of that format | told in a text | the same, and its own in the chat |
| neither | told in a text | Hermes's, unless another format was said: then none are told |
"""

from __future__ import annotations

import msgspec

from router.text.tokenizer import ChatTemplate
from router.tools.content_beside_calls import calls_alone, content_apart
from router.tools.detection import AUTO
from router.tools.formats import HERMES, ToolFormat
from router.tools.one_call_each import one_call_each
from router.tools.told_otherwise import ToldOtherwise
from router.tools.tools_in_text import ToolsInText
from router.tools.written_calls import takes_calls, takes_content, taking_text, written_calls


class FittedTemplate(msgspec.Struct, frozen=True):
    """What a chat is rendered with."""

    template: ChatTemplate
    tools: ToolFormat | None
    """How the model calls; None: no tools are to be offered."""
    one_call: bool = False
    """See Manners."""


def fitted(template: ChatTemplate, tools: ToolFormat | None, asked: str) -> FittedTemplate:
    """`tools`: what was found in the template, or said by `asked`, the word of --tool-format.
    Renders some short chats: at most as long as the template's budget, for each."""
    calls = written_calls(template)
    if calls is not None and calls.takes_text:
        template = taking_text(template, is_silent=calls.is_silent)
    if calls is not None:
        template = _with_content(template)
    if one_call := calls is not None and calls.only_one:
        each = ToldOtherwise(template, one_call_each)
        template = each if takes_calls(each, 2) else template
    if "tools" in template.takes:
        return FittedTemplate(template, tools, one_call)
    example = None if tools is None or calls is None else calls.example(tools)
    if example is not None:
        return FittedTemplate(ToolsInText(template, example), tools, one_call)
    if asked in (AUTO, HERMES.name):
        return FittedTemplate(ToolsInText(template), HERMES)
    return FittedTemplate(template, tools)


def _with_content(template: ChatTemplate) -> ChatTemplate:
    """One that takes an answer that says something and calls: what came of its calls needs them.
    Where the template itself writes them without what was said (Llama 3.1's), that is its way."""
    if takes_content(template, is_kept=False):
        return template
    apart = ToldOtherwise(template, content_apart)
    alone = ToldOtherwise(template, calls_alone)
    if takes_content(apart):
        return apart
    return alone if takes_content(alone, is_kept=False) else template
