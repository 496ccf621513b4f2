"""Bodies of /v1/embeddings, as OpenAI has them."""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.decode import decode_known
from router.api.reading.pooling_schema import EmbeddingsRequest
from router.api.reading.prompts import to_prompts
from router.front.pooled_rest import PooledRest
from router.front.pooling_checks import MAX_INPUTS, check_embeds, check_input_tokens
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Half of what all answers together may wait with for their readers."""
BASE64_BYTES, FLOAT_BYTES = 16 / 3, 22
"""Of a value in an answer, at most."""
_DECODER = msgspec.json.Decoder(EmbeddingsRequest)


class EmbeddingsReader:
    """See PooledReader."""

    door = Door.EMBEDDINGS

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def split(self, body: bytes) -> SplitBody:
        """See PooledReader."""
        request, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        rest = self._rest(request)
        check_input_tokens(len(request.input), _num_given(request.input), self.door.inputs)
        prompts = to_prompts(
            request.input,
            max_context_tokens=self._model.max_context_tokens,
            add_special=request.add_special_tokens is not False,
            name="input",
            max_prompts=MAX_INPUTS,
        )
        self._check_answer(len(prompts), rest)
        return SplitBody(msgspec.json.encode(rest), prompts, ignored=ignored)

    def _rest(self, request: EmbeddingsRequest) -> PooledRest:
        rest = PooledRest.of(self._model, request.model, request.cache_salt, request.timeout_s)
        check_embeds(self._model, request.dimensions)
        rest.dimensions = request.dimensions
        rest.is_base64 = _is_base64(request.encoding_format)
        return rest

    def _check_answer(self, num_prompts: int, rest: PooledRest) -> None:
        """Raises InvalidRequest for more than is told at once."""
        width = rest.dimensions or self._model.hidden_size
        num_bytes = num_prompts * width * (BASE64_BYTES if rest.is_base64 else FLOAT_BYTES)
        if num_bytes > MAX_ANSWER_BYTES:
            raise InvalidRequest(
                f"{num_prompts} embeddings of {width} values take up to {int(num_bytes)} bytes; "
                f"allowed: {MAX_ANSWER_BYTES}: send fewer inputs, or set encoding_format to base64",
                param="input",
            )


def _num_given(given: str | list[str | int | list[int]]) -> int:
    """Token ids in lists, before anything is made of them."""
    return 0 if isinstance(given, str) else sum(len(e) for e in given if isinstance(e, list))


def _is_base64(asked: str | None) -> bool:
    if asked not in (None, "float", "base64"):
        raise InvalidRequest(
            f"encoding_format is {asked[:50]!r}; allowed: float, base64", param="encoding_format"
        )
    return asked == "base64"
