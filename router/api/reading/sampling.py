"""From request fields to sampling parameters and stop strings."""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from cluster.models.hf.generation_defaults import GenerationDefaults
from cluster.sampling import MAX_LOGPROBS, SamplingParams
from router.api.reading.answer_format import grammar_in
from router.api.reading.plan import AnswerOptions
from router.api.reading.schema import ChatRequest, CompletionRequest, SamplingFields
from router.api.reading.several_answers import several_answers_of
from router.front.generation_request import (
    TextOptions,
    check_num_biases,
    check_salt,
    check_stops,
    checked_seed,
)

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "min_tokens",
    "ignore_eos",
)


def sampling_of(
    request: SamplingFields,
    defaults: GenerationDefaults,
    *,
    logprobs: int | None,
    prompt_logprobs: int | None,
    form: Grammar | None = None,
) -> SamplingParams:
    """Absent fields take the defaults. `max_tokens` and `seed` are resolved later, ranges are
    checked there. `form`: of the answer, where something else than its format says it."""
    several = several_answers_of(request)
    searches = several is not None and several.beams is not None
    given: dict[str, Any] = {} if searches else dict(defaults.sampling)
    given |= {name: value for name in _SAME_NAME if (value := getattr(request, name)) is not None}
    if several is not None:
        given |= {"n": several.num_made, "beams": several.beams}
        logprobs = 0 if several.num_best is not None and logprobs is None else logprobs
    bias = request.logit_bias or {}
    check_num_biases(len(bias))
    return SamplingParams(
        max_tokens=1,
        logit_bias=bias,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        stop_token_ids=tuple(request.stop_token_ids or ()),
        grammar=grammar_in(request) if form is None else form,
        **given,
    )


def num_best_of(request: SamplingFields) -> int | None:
    """Of the choices, how many are told, the likeliest; None: all."""
    several = several_answers_of(request)
    return None if several is None else several.num_best


def seed_of(request: SamplingFields) -> int | None:
    """Raises InvalidRequest for what is no 64-bit integer."""
    return None if request.seed is None else checked_seed(request.seed)


def stops_of(request: SamplingFields) -> tuple[str, ...]:
    """Raises InvalidRequest for too many, empty or too long strings."""
    if request.stop is None:
        return ()
    return check_stops((request.stop,) if isinstance(request.stop, str) else tuple(request.stop))


def salt_of(request: SamplingFields) -> str:
    """The client's part of the cache salt."""
    return check_salt(request.cache_salt or "")


def text_options_of(request: SamplingFields) -> TextOptions:
    """How tokens become text."""
    return TextOptions(
        shows_special=request.skip_special_tokens is False,
        includes_stop=bool(request.include_stop_str_in_output),
    )


def max_tokens_of_chat(request: ChatRequest) -> int | None:
    """Either name; both only when they agree."""
    old, new = request.max_tokens, request.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest(
            f"max_tokens is {old} and max_completion_tokens is {new}; send one of them",
            param="max_completion_tokens",
        )
    return new if new is not None else old


def logprobs_of_chat(request: ChatRequest) -> int | None:
    """None: not asked for; else the number of alternatives."""
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    return _checked(request.top_logprobs or 0, "top_logprobs") if request.logprobs else None


def logprobs_of_completion(request: CompletionRequest) -> int | None:
    """None: not asked for; else the number of alternatives."""
    return None if request.logprobs is None else _checked(request.logprobs, "logprobs")


def prompt_logprobs_of(request: SamplingFields) -> int | None:
    """None: not asked for; else the number of candidates. Not with a stream, as in vLLM."""
    if request.prompt_logprobs is None:
        return None
    if request.stream:
        raise InvalidRequest(
            "prompt_logprobs are not available in a stream; leave stream out",
            param="prompt_logprobs",
        )
    return _checked(request.prompt_logprobs, "prompt_logprobs")


def answer_options_of(request: SamplingFields) -> AnswerOptions:
    """Raises InvalidRequest for `stream_options` on an answer that is not streamed."""
    wanted = request.stream_options
    if wanted is not None and not request.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    return AnswerOptions(
        stream=bool(request.stream),
        include_usage=wanted is not None and bool(wanted.include_usage),
        continuous_usage=wanted is not None and bool(wanted.continuous_usage_stats),
        timings=bool(request.timings),
        resumable=bool(request.resumable),
    )


def _checked(count: int, name: str) -> int:
    if not 0 <= count <= MAX_LOGPROBS:
        raise InvalidRequest(f"{name} is {count}; allowed: 0 to {MAX_LOGPROBS}", param=name)
    return count
