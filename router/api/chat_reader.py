"""Bodies of /v1/chat/completions."""

from __future__ import annotations

import msgspec

from router.api import sampling
from router.api.chat_messages import to_pairs
from router.api.chat_shape import ChatShape
from router.api.decode import decode
from router.api.plan import Plan
from router.api.schema import ChatRequest
from router.api.unsupported import check_chat
from router.front.generation_request import ChatPrompt
from router.front.served_model import ServedModel

_DECODER = msgspec.json.Decoder(ChatRequest)


class ChatReader:
    """Reads chats for one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def read(self, body: bytes) -> Plan:
        """See BodyReader."""
        request = decode(body, _DECODER)
        self._model.check_name(request.model)
        check_chat(request)
        logprobs = sampling.logprobs_of_chat(request)
        return Plan(
            prompts=(ChatPrompt(to_pairs(request.messages)),),
            sampling=sampling.sampling_of(request, logprobs=logprobs),
            max_tokens=sampling.max_tokens_of_chat(request),
            timeout_s=request.timeout_s,
            stop=sampling.stops_of(request),
            cache_salt=sampling.salt_of(request),
            shape=ChatShape(None if logprobs is None else self._model.tokenizer),
            options=sampling.answer_options_of(request),
            id_prefix="chatcmpl",
        )
