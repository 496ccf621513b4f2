"""How families of models write calls: markers as data, and which reader reads what follows one.

| format | a call |
|---|---|
| hermes | `<tool_call>{"name": .., "arguments": {..}}</tool_call>` (Hermes, Qwen2.5, Qwen3) |
| qwen3_coder | `<tool_call><function=N><parameter=K>V</parameter></function></tool_call>` |
| llama3_json | `{"name": .., "parameters": {..}}` alone, maybe after `<|python_tag|>` |
| pythonic | `[f(a=1), g()]` as the whole answer (Llama 3.2, Llama 4) |
| mistral | `[TOOL_CALLS][{..}]`, or `[TOOL_CALLS]N[ARGS]{..}` repeated; V11: `N[CALL_ID]I[ARGS]` |
| deepseek_v3 | `<｜tool▁call▁begin｜>function<｜tool▁sep｜>N`, a block of json; V3.1: `N<..>{..}` |
| gemma | `<start_function_call>call:N{k:<escape>v<escape>}<end_function_call>` |
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.identity import UniqueHex
from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.family_words import (
    ARGS,
    CALL_BEGIN,
    CALL_END,
    CALL_ID,
    CALLS_BEGIN,
    CALLS_END,
    ESCAPE,
    FENCE,
    FENCE_END,
    FENCED,
    FUNCTION,
    FUNCTION_CALL,
    FUNCTION_CALL_END,
    PYTHON_END,
    PYTHON_START,
    PYTHON_TAG,
    SEPARATOR,
    TOOL_CALL,
    TOOL_CALL_END,
    TOOL_CALLS,
)
from router.tools.gemma_calls import read_gemma_call
from router.tools.json_calls import read_arguments, read_call_object, read_named_call
from router.tools.piece_reader import Malformed, PieceReader, Steps
from router.tools.python_calls import read_call_list
from router.tools.tagged_calls import Kinds, read_function

SectionReader = Callable[[PieceReader, CallTeller, Kinds], Steps[None]]
"""Reads from after a marker to the end of its calls. Raises Malformed."""


class RawValues(enum.Enum):
    """Whether values are raw text: then what a tool's schema says of one makes a number of it."""

    NEVER = enum.auto()
    OF_SOME = enum.auto()
    """Some models write calls in this format with JSON, and others with raw text as values."""
    ALWAYS = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One family's. `name` is its word in `--tool-format`."""

    name: str
    sections: Mapping[str, SectionReader]
    """By the marker that begins one; the first that matches counts."""
    bare: Mapping[str, SectionReader]
    """By the character with which an answer that is nothing but calls may begin. It is read by the
    section's reader."""
    inner: tuple[str, ...] = ()
    """What stands in a section, and may be a special token."""
    raw_values: RawValues = RawValues.NEVER
    short_ids: bool = False
    """Its template takes ids of nine letters and digits alone."""

    @property
    def trigger(self) -> str:
        """The marker with which a grammar has sections begin; of bare families it may be left out
        at the beginning of an answer."""
        return next(iter(self.sections))

    @property
    def words(self) -> frozenset[str]:
        """All that marks something."""
        return frozenset((*self.sections, *self.inner))


def _tool_call(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    """What stands in `<tool_call>` is JSON, or a function with tags."""
    yield from reader.spaces()
    if (yield from reader.continues(FUNCTION)):
        yield from read_function(reader, call, kinds)
    else:
        yield from read_call_object(reader, call)
    yield from _closing(reader, TOOL_CALL_END)


def _function(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    yield from read_function(reader, call, kinds)
    yield from _closing(reader, TOOL_CALL_END)


def _llama_json(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    """Objects, with a semicolon or nothing between them."""
    yield from reader.spaces()
    yield from read_call_object(reader, call, only_known=True)
    while True:
        call.mark()
        yield from reader.spaces()
        yield from reader.continues(";")
        yield from reader.spaces()
        if (yield from reader.peek()) != "{":
            return
        yield from read_call_object(reader, call, only_known=True)


def _python_list(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    yield from reader.expect("[")
    yield from read_call_list(reader, call)
    yield from _closing(reader, PYTHON_END)


def _python_start(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    yield from reader.spaces()
    yield from _python_list(reader, call, kinds)


def _mistral(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    """Up to version 7 a list of objects, from 11 on a name, maybe an id, and an object. The id says
    nothing: a call is given one of ours."""
    yield from reader.spaces()
    if (yield from reader.peek()) != "[":
        yield from read_named_call(reader, call, ARGS, id_word=CALL_ID)
        return
    reader.skip()
    yield from reader.spaces()
    yield from read_call_object(reader, call)
    while True:
        call.mark()
        yield from reader.spaces()
        if not (yield from reader.continues(",")):
            break
        yield from reader.spaces()
        yield from read_call_object(reader, call)
    yield from _closing(reader, "]")


def _deepseek_list(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    yield from reader.spaces()
    yield from reader.expect(CALL_BEGIN)
    yield from _deepseek(reader, call, kinds)


def _deepseek(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    """Calls up to the end of their list; the first has begun."""
    yield from _deepseek_call(reader, call)
    while True:
        call.mark()
        yield from _closing(reader, CALL_END)
        yield from reader.spaces()
        if not (yield from reader.continues(CALL_BEGIN)):
            break
        call.mark(CALL_BEGIN)
        yield from _deepseek_call(reader, call)
    yield from _closing(reader, CALLS_END)


def _deepseek_call(reader: PieceReader, call: CallTeller) -> Steps[None]:
    head = yield from reader.until(SEPARATOR, max_chars=MAX_NAME_CHARS)
    is_fenced = head.strip() == FENCED
    if is_fenced:
        head = yield from reader.until("\n", max_chars=MAX_NAME_CHARS)
        yield from reader.spaces()
        yield from reader.expect(FENCE)
    yield from reader.spaces()
    if (yield from reader.peek()) != "{":
        raise Malformed
    call.begin(head.strip())
    yield from read_arguments(reader, call)
    if is_fenced:
        yield from _closing(reader, FENCE_END)


def _gemma(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    yield from read_gemma_call(reader, call)
    yield from _closing(reader, FUNCTION_CALL_END)


def _closing(reader: PieceReader, word: str) -> Steps[None]:
    """Past it, where it comes next; a call that is whole is none the less for lack of it."""
    yield from reader.spaces()
    yield from reader.continues(word)


HERMES = ToolFormat(
    name="hermes",
    sections={TOOL_CALL: _tool_call},
    bare={},
    inner=(TOOL_CALL_END,),
    raw_values=RawValues.OF_SOME,
)
QWEN3_CODER = ToolFormat(
    name="qwen3_coder",
    sections={TOOL_CALL: _tool_call, FUNCTION: _function},
    bare={},
    inner=(TOOL_CALL_END,),
    raw_values=RawValues.ALWAYS,
)
LLAMA3_JSON = ToolFormat(
    name="llama3_json", sections={PYTHON_TAG: _llama_json}, bare={"{": _llama_json}
)
PYTHONIC = ToolFormat(
    name="pythonic",
    sections={PYTHON_START: _python_start},
    bare={"[": _python_list},
    inner=(PYTHON_END,),
)
MISTRAL = ToolFormat(
    name="mistral",
    sections={TOOL_CALLS: _mistral},
    bare={},
    inner=(CALL_ID, ARGS),
    short_ids=True,
)
DEEPSEEK_V3 = ToolFormat(
    name="deepseek_v3",
    sections={CALLS_BEGIN: _deepseek_list, CALL_BEGIN: _deepseek},
    bare={},
    inner=(SEPARATOR, CALL_END, CALLS_END),
)
GEMMA = ToolFormat(
    name="gemma",
    sections={FUNCTION_CALL: _gemma},
    bare={},
    inner=(ESCAPE, FUNCTION_CALL_END),
)
FORMATS = {
    each.name: each
    for each in (HERMES, QWEN3_CODER, LLAMA3_JSON, PYTHONIC, MISTRAL, DEEPSEEK_V3, GEMMA)
}
ID_CHARS = 24
SHORT_ID_CHARS = 9


def new_call_id(tools: ToolFormat, draw: UniqueHex) -> str:
    """That nobody was given before; as short as the family's template wants it."""
    return draw()[:SHORT_ID_CHARS] if tools.short_ids else f"call_{draw()[:ID_CHARS]}"
