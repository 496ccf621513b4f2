"""Bodies of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.sampling import SamplingParams
from router.api.answers.completion_shape import CompletionShape, CompletionWishes
from router.api.reading import sampling
from router.api.reading.decode import decode, decode_known
from router.api.reading.plan import Plan
from router.api.reading.prompts import kept_tokens, to_prompts
from router.api.reading.schema import CompletionRequest
from router.api.reading.unsupported import check_completion
from router.front.generation_request import TextPrompt, TokenPrompt, Wishes
from router.front.prompt_encoding import checked_ids
from router.front.served_model import ServedModel
from router.front.text_work import Door, NotHere, SplitBody, has_many_ids

DEFAULT_MAX_TOKENS = 16
"""OpenAI's and vLLM's, for completions that name no `max_tokens`."""
_DECODER = msgspec.json.Decoder(CompletionRequest)


class CompletionReader:
    """Reads completions for one model."""

    door = Door.COMPLETION

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def read(self, body: bytes) -> Plan:
        """See BodyReader."""
        request, ignored = self._checked(body)
        prompts = self._prompts(request)
        if request.echo and has_many_ids(prompts):
            raise NotHere
        plan = self._plan(request, prompts)
        return msgspec.structs.replace(plan, ignored=ignored) if ignored else plan

    def split(self, body: bytes) -> SplitBody:
        """See BodyReader."""
        request, ignored = self._checked(body)
        prompts = self._prompts(request)
        request.prompt = ""
        self._plan(request, ())  # what is wrong beside the prompts is refused by its name
        rest = msgspec.json.encode(request)
        return SplitBody(rest, prompts, is_echoed=bool(request.echo), ignored=ignored)

    def shape_again(self, sampling: SamplingParams) -> CompletionShape:
        """See BodyReader."""
        wishes = CompletionWishes(
            logprobs=sampling.logprobs, prompt_logprobs=None, num_choices=sampling.n
        )
        return CompletionShape(self._model.tokenizer, wishes, echoes=())

    def join(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> Plan:
        """See BodyReader."""
        return self._plan(decode(rest, _DECODER), prompts)

    def _checked(self, body: bytes) -> tuple[CompletionRequest, tuple[str, ...]]:
        """The request, and the names of what was left out."""
        request, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        check_completion(request)
        return request, ignored

    def _prompts(self, request: CompletionRequest) -> list[TextPrompt | TokenPrompt]:
        max_context_tokens = self._model.max_context_tokens
        return to_prompts(
            request.prompt,
            max_context_tokens=max_context_tokens,
            add_special=request.add_special_tokens is not False,
            keep_last=kept_tokens(
                request.truncate_prompt_tokens,
                max_tokens=request.max_tokens,
                max_context_tokens=max_context_tokens,
            ),
        )

    def _plan(
        self, request: CompletionRequest, prompts: Sequence[TextPrompt | TokenPrompt]
    ) -> Plan:
        logprobs = sampling.logprobs_of_completion(request)
        asked = sampling.prompt_logprobs_of(request)
        params = sampling.sampling_of(
            request,
            self._model.defaults,
            logprobs=logprobs,
            prompt_logprobs=most(asked, logprobs if request.echo else None),
        )
        num_best = sampling.num_best_of(request)
        shape = CompletionShape(
            self._model.tokenizer,
            CompletionWishes(
                logprobs=logprobs, prompt_logprobs=asked, num_choices=num_best or params.n
            ),
            echoes=[self._text(prompt) for prompt in prompts] if request.echo else (),
        )
        return Plan(
            prompts=tuple(prompts),
            wishes=Wishes(
                sampling=params,
                num_best=num_best,
                tells_logprobs=logprobs is not None,
                max_tokens=request.max_tokens,
                seed=sampling.seed_of(request),
                default_max_tokens=DEFAULT_MAX_TOKENS,
                stop=sampling.stops_of(request),
                cache_salt=sampling.salt_of(request),
                adapter=self._model.adapter_name_in(request.model),
                text=sampling.text_options_of(request),
                is_echoed=bool(request.echo),
                keep_tokens=logprobs is not None,
            ),
            timeout_s=request.timeout_s,
            shape=shape,
            options=sampling.answer_options_of(request),
            id_prefix="cmpl",
        )

    def _text(self, prompt: TextPrompt | TokenPrompt) -> str:
        """For the echo. Ids that nobody has looked at yet are checked first."""
        if prompt.text is not None:
            return prompt.text
        model = self._model
        limit = model.max_context_tokens
        return model.tokenizer.decode(
            checked_ids(model, prompt.token_ids, max_context_tokens=limit)
        )


def most(*counts: int | None) -> int | None:
    """The largest of those that were asked for."""
    return max((count for count in counts if count is not None), default=None)
