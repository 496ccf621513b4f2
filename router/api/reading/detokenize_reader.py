"""Bodies of /detokenize, and its answers, as vLLM has them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.api.reading.asked_model import rest_with
from router.api.reading.decode import decode_known
from router.api.reading.schema import TokenDecoding
from router.front.generation_request import TokenPrompt
from router.front.prompt_encoding import check_num_tokens
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

_DECODER = msgspec.json.Decoder(TokenDecoding)


class DetokenizeBody(msgspec.Struct):
    """The answer."""

    prompt: str


class DetokenizeReader:
    """See TextReader."""

    door = Door.DETOKENIZE

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def split(self, body: bytes) -> SplitBody:
        """See TextReader."""
        request, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        check_num_tokens(len(request.tokens), self._model.max_context_tokens)
        return SplitBody(
            rest_with(request.model),
            (TokenPrompt(request.tokens),),
            is_echoed=True,
            ignored=ignored,
        )

    async def answer(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> bytes:
        """See TextReader."""
        prompt = prompts[0]
        text = prompt.text
        if text is None:
            text = self._model.tokenizer.decode(prompt.token_ids)
        return msgspec.json.encode(DetokenizeBody(text))
