"""Bodies of /tokenize, and its answers, as vLLM has them: a text or a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.chat_messages import to_pairs
from router.api.reading.decode import decode_known
from router.api.reading.rendering import rendering_of
from router.api.reading.schema import ChatRendering, TextEncoding
from router.api.reading.talk import talk_of
from router.api.reading.tools import checked_tools
from router.front.chat_rules import check_num_messages
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

SLICE_TOKENS = 512
"""About 1 ms of the event loop: SmolLM2 names 8,100 in 14 ms."""
_TEXT = msgspec.json.Decoder(TextEncoding)
_CHAT = msgspec.json.Decoder(ChatRendering)
_KIND = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TokenizeBody(msgspec.Struct):
    """The answer; `token_strs` where they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class TokenizeReader:
    """See TextReader."""

    door = Door.TOKENIZE

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def split(self, body: bytes) -> SplitBody:
        """See TextReader."""
        request, ignored = self._checked(body)
        prompt = self._prompt_of(request)
        if isinstance(request, TextEncoding):
            request.prompt = ""
        else:
            request.messages, request.tools = [], None
        return SplitBody(msgspec.json.encode(request), (prompt,), ignored=ignored)

    async def answer(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> bytes:
        """See TextReader."""
        token_ids = prompts[0].token_ids
        wants_names = _decoded(rest, ignores_unknown=False)[0].return_token_strs
        names = await self._names(token_ids) if wants_names else None
        return msgspec.json.encode(
            TokenizeBody(len(token_ids), self._model.max_context_tokens, token_ids, names)
        )

    async def _names(self, token_ids: list[int]) -> list[str]:
        """A slice at a time, so that other requests go on in between."""
        names: list[str] = []
        for start in range(0, len(token_ids), SLICE_TOKENS):
            part = token_ids[start : start + SLICE_TOKENS]
            names += [self._model.tokenizer.token_text(i) for i in part]
            await asyncio.sleep(0)
        return names

    def _checked(self, body: bytes) -> _Decoded:
        request, ignored = _decoded(body, ignores_unknown=self._ignores_unknown)
        if isinstance(request, ChatRendering):
            check_num_messages(len(request.messages))
            checked_tools(request.tools or [])
            if request.chat_template:
                raise InvalidRequest(
                    "chat_template is not supported by this server", param="chat_template"
                )
        return request, ignored

    def _prompt_of(self, request: TextEncoding | ChatRendering) -> Prompt:
        if isinstance(request, TextEncoding):
            return TextPrompt(request.prompt, request.add_special_tokens is not False)
        return ChatPrompt(
            to_pairs(request.messages),
            rendering_of(request, self._model),
            talk=talk_of(request, self._model),
        )


_Decoded = tuple[TextEncoding | ChatRendering, tuple[str, ...]]
"""The request, and the names of what was left out."""


def _decoded(body: bytes, *, ignores_unknown: bool) -> _Decoded:
    if "messages" in decode_keys(body):
        return decode_known(body, _CHAT, ignores_unknown=ignores_unknown)
    return decode_known(body, _TEXT, ignores_unknown=ignores_unknown)


def decode_keys(body: bytes) -> frozenset[str]:
    """The names at the top of a body; none for what is no object."""
    try:
        return frozenset(_KIND.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frozenset()
