"""Bodies of /v1/completions."""

from __future__ import annotations

import msgspec

from router.api import sampling
from router.api.completion_shape import CompletionShape
from router.api.decode import decode
from router.api.plan import Plan
from router.api.prompts import to_prompts
from router.api.schema import CompletionRequest
from router.api.unsupported import check_completion
from router.front.generation_request import TextPrompt, TokenPrompt
from router.front.served_model import ServedModel

_DECODER = msgspec.json.Decoder(CompletionRequest)


class CompletionReader:
    """Reads completions for one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def read(self, body: bytes) -> Plan:
        """See BodyReader."""
        request = decode(body, _DECODER)
        self._model.check_name(request.model)
        check_completion(request)
        prompts = to_prompts(request.prompt, max_tokens=self._model.max_context_tokens)
        logprobs = sampling.logprobs_of_completion(request)
        params = sampling.sampling_of(request, logprobs=logprobs)
        shape = CompletionShape(
            None if logprobs is None else self._model.tokenizer,
            echoes=[self._text(prompt) for prompt in prompts] if request.echo else (),
            num_choices=params.n,
        )
        return Plan(
            prompts=tuple(prompts),
            sampling=params,
            max_tokens=request.max_tokens,
            timeout_s=request.timeout_s,
            stop=sampling.stops_of(request),
            cache_salt=sampling.salt_of(request),
            shape=shape,
            options=sampling.answer_options_of(request),
            id_prefix="cmpl",
        )

    def _text(self, prompt: TextPrompt | TokenPrompt) -> str:
        if isinstance(prompt, TextPrompt):
            return prompt.text
        stream = self._model.tokenizer.new_stream()
        known = (i for i in prompt.token_ids if 0 <= i < self._model.vocab_size)
        return "".join(stream.step(token_id) for token_id in known) + stream.finish()
