"""Answers of /v1/chat/completions in which calls of tools and thoughts are looked for."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.generation import FinishReason
from cluster.identity import UniqueHex, unique_hex
from router.api.answers.bodies import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    FunctionCall,
    ParsedMessage,
    ToolCall,
    ToolCallDelta,
)
from router.api.answers.chat_shape import ChatShape, GatheredChat
from router.api.answers.ending import NO_END, Ending
from router.api.answers.gathered_parts import GatheredParts
from router.api.answers.shape import GatheredChoice
from router.text.choice import TextDelta
from router.text.tokenizer import Tokenizer
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.formats import new_call_id
from router.tools.parts import AnswerPart, CallArguments, CallBegun, CallBroken, Content, Thought
from router.tools.prompt_tail import opens_thought
from router.tools.thought_tokens import ThoughtTokens

TOOL_CALLS = "tool_calls"
"""OpenAI's finish reason of an answer that calls."""


class ParsedChatShape(ChatShape):
    """A ChatShape with a parser for each choice. `tells_thoughts`: else they are left out.
    `call_reason`: the finish reason of an answer that calls. `is_thinking`: it goes on with a
    message that does."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        parsing: Parsing,
        *,
        logprobs: bool,
        prompt_logprobs: int | None,
        tells_thoughts: bool = True,
        call_reason: str = TOOL_CALLS,
        is_thinking: bool = False,
        draw: UniqueHex = unique_hex,
    ) -> None:
        super().__init__(tokenizer, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        self._parsing = parsing
        self._tells_thoughts = tells_thoughts
        self._call_reason = call_reason
        self._is_thinking = is_thinking
        self._parsers: dict[int, AnswerParser] = {}
        self._draw = draw
        self._thoughts = None if parsing.thoughts is None else ThoughtTokens()

    @property
    def thought_tokens(self) -> ThoughtTokens | None:
        """See AnswerShape."""
        return self._thoughts

    def starts_after(self, token_ids: Sequence[int]) -> None:
        """See AnswerShape."""
        if opens_thought(self._parsing.thoughts, token_ids, self._tokenizer):
            self._is_thinking = True

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> ChatChunkChoice | None:
        """See AnswerShape."""
        told = self._told(self.parts(index, delta))
        if first:
            told.role = "assistant"
            if told.content is None and told.tool_calls is None:
                told.content = ""
        if told == _NOTHING and delta.finish_reason is None and not delta.tokens:
            return None
        reason = self.finish_reason(index, delta)
        return ChatChunkChoice(index, told, self.logprobs(delta.tokens), reason)

    def gathered(self, index: int) -> GatheredChoice:
        """See AnswerShape."""
        return _GatheredParsed(index, self, self._tokenizer if self._has_logprobs else None)

    def parts(self, index: int, delta: TextDelta) -> list[AnswerPart]:
        """What is new in a choice."""
        parser = self._parsers.get(index)
        if parser is None:
            parser = AnswerParser(self._parsing, is_thinking=self._is_thinking)
            self._parsers[index] = parser
        was_thinking = parser.is_thinking
        is_last = delta.finish_reason is not None
        parts = parser.finish(delta.text) if is_last else parser.feed(delta.text)
        if was_thinking and self._thoughts is not None:
            self._thoughts.count(index, delta, parser)
        return parts

    def ending(self, index: int, delta: TextDelta) -> Ending:
        """Of a choice whose `parts` were taken with this delta."""
        if delta.finish_reason is None:
            return NO_END
        has_called = self._parsers[index].has_called
        return Ending(reason=delta.finish_reason, has_called=has_called, stop=delta.stop)

    def finish_reason(self, index: int, delta: TextDelta) -> str | None:
        """`call_reason` for an answer that ends with its calls whole."""
        ending = self.ending(index, delta)
        if ending.reason is FinishReason.STOP and ending.has_called:
            return self._call_reason
        return ending.reason

    def message(self, parts: GatheredParts) -> ParsedMessage:
        """In one piece."""
        message = ParsedMessage(parts.content)
        if self._tells_thoughts and parts.thought:
            message.reasoning_content = parts.thought
        if parts.calls:
            message.content = parts.content or None
            message.tool_calls = [
                ToolCall(self._new_id(), FunctionCall(each.arguments, each.name))
                for each in parts.calls
            ]
        elif parts.thought and not parts.content:
            message.content = None
        return message

    def _told(self, parts: list[AnswerPart]) -> ChatDelta:
        told = ChatDelta()
        for part in parts:
            match part:
                case Content(text=text) | CallBroken(rest=text):
                    told.content = (told.content or "") + text if text else told.content
                case Thought(text=text):
                    if self._tells_thoughts:
                        told.reasoning_content = (told.reasoning_content or "") + text
                case CallBegun(index=call, name=name):
                    begun = ToolCallDelta(call, FunctionCall("", name), self._new_id(), "function")
                    told.tool_calls = [*(told.tool_calls or ()), begun]
                case CallArguments(index=call, text=text):
                    _add_arguments(told, call, text)
        return told

    def _new_id(self) -> str:
        tools = self._parsing.tools
        assert tools is not None, "calls are looked for in a format of tools"
        return new_call_id(tools, self._draw)


_NOTHING = ChatDelta()


def _add_arguments(told: ChatDelta, call: int, text: str) -> None:
    """To the entry of that call, where it has one in this chunk."""
    entries = told.tool_calls = told.tool_calls or []
    if entries and entries[-1].index == call:
        entries[-1].function.arguments += text
    else:
        entries.append(ToolCallDelta(call, FunctionCall(text)))


class _GatheredParsed(GatheredChat):
    """A GatheredChoice of a chat that is parsed."""

    def __init__(self, index: int, shape: ParsedChatShape, tokenizer: Tokenizer | None) -> None:
        super().__init__(index, tokenizer)
        self._shape = shape
        self._parts = GatheredParts()
        self._reason: str | None = None

    def add(self, delta: TextDelta) -> None:
        """See GatheredChoice."""
        super().add(delta)
        self._parts.add(self._shape.parts(self._index, delta))
        self._reason = self._shape.finish_reason(self._index, delta)

    def whole(self) -> ChatChoice:
        """See GatheredChoice."""
        choice = super().whole()
        choice.message = self._shape.message(self._parts)
        choice.finish_reason = str(self._reason)
        return choice
