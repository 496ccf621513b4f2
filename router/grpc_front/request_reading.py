"""From a GenerateRequest to what the pipeline takes: the limits of HTTP, before the work."""

from __future__ import annotations

import msgspec
from google.protobuf.message import DecodeError

from cluster.errors import InvalidRequest
from cluster.models.hf.generation_defaults import GenerationDefaults
from cluster.sampling import MAX_CHOICES, SamplingParams
from cluster.wire import sampling_from_wire
from protos import generation_pb2, inference_pb2
from router.dispatch.time_limits import TimeLimits
from router.front.caller import Caller
from router.front.chat_rules import check_num_messages, checked_role
from router.front.generation_request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
    Wishes,
    check_num_biases,
    check_prediction,
    check_stops,
    checked_seed,
)
from router.front.prompt_encoding import check_num_tokens
from router.front.served_model import ServedModel
from router.front.text_work import SplitBody
from router.grpc_front.asked_form import grammar_in
from router.tenants.tenant import Tenant


def parse_message(raw: bytes) -> inference_pb2.GenerateRequest:
    """Raises InvalidRequest."""
    try:
        return inference_pb2.GenerateRequest.FromString(raw)
    except DecodeError:
        raise InvalidRequest("the message is no GenerateRequest") from None


def split_message(model: ServedModel, raw: bytes) -> SplitBody:
    """A text worker's part of a large message; see BodyReader.split."""
    message = parse_message(raw)
    prompt = prompt_of(message, model)
    for kind in ("text", "chat", "tokens"):
        message.ClearField(kind)
    _check_lists(message.sampling)
    check_prediction(message.prediction)
    grammar_in(message)
    num_limited = len(message.prediction.encode())
    return SplitBody(message.SerializeToString(), (prompt,), num_limited_bytes=num_limited)


def read_request(
    message: inference_pb2.GenerateRequest,
    prompt: Prompt,
    request_id: str,
    *,
    tenant: Tenant,
    caller: Caller,
    limits: TimeLimits,
    defaults: GenerationDefaults,
    adapter: str = "",
) -> GenerationRequest:
    """`adapter`: its name; empty: the model alone. Raises InvalidRequest; ranges of sampling
    parameters are checked by the pipeline."""
    wire = message.sampling
    _check_lists(wire)
    sampling = _sampling_of(message, defaults)
    num_best = _num_best(wire)
    if num_best is not None:
        sampling = _of_so_many(sampling, wire)
    return GenerationRequest(
        request_id=request_id,
        tenant=tenant,
        caller=caller,
        prompt=prompt,
        limits=limits,
        wishes=Wishes(
            sampling=sampling,
            num_best=num_best,
            tells_logprobs=wire.HasField("logprobs"),
            seed=checked_seed(wire.seed) if wire.HasField("seed") else None,
            max_tokens=wire.max_tokens if wire.HasField("max_tokens") else None,
            default_max_tokens=defaults.max_new_tokens,
            stop=tuple(wire.stop),
            keep_tokens=True,
            adapter=adapter,
            prediction=check_prediction(message.prediction) or None,
        ),
    )


def _sampling_of(
    message: inference_pb2.GenerateRequest, defaults: GenerationDefaults
) -> SamplingParams:
    searches = message.sampling.HasField("beams")  # by the model's own distribution
    chosen = {} if searches else defaults.sampling
    sampling = sampling_from_wire(message.sampling, max_tokens=1, defaults=chosen)
    grammar = grammar_in(message)
    return sampling if grammar is None else msgspec.structs.replace(sampling, grammar=grammar)


def _num_best(wire: generation_pb2.SamplingParams) -> int | None:
    """Of those sampled, how many are told; None: all. Raises InvalidRequest."""
    if not wire.HasField("best_of"):
        return None
    num_told = wire.n if wire.HasField("n") else 1
    if wire.HasField("beams"):
        raise InvalidRequest(
            "best_of does not go with beams; beams.width says how many there are",
            param="sampling.best_of",
        )
    if not 1 <= num_told <= wire.best_of <= MAX_CHOICES:
        raise InvalidRequest(
            f"best_of is {wire.best_of} and n is {num_told}; allowed: 1 <= n <= best_of <= "
            f"{MAX_CHOICES}",
            param="sampling.best_of",
        )
    return num_told if wire.best_of > num_told else None


def _of_so_many(sampling: SamplingParams, wire: generation_pb2.SamplingParams) -> SamplingParams:
    """All are sampled, with the logprobs that the choice among them needs."""
    return msgspec.structs.replace(
        sampling, n=wire.best_of, logprobs=wire.logprobs if wire.HasField("logprobs") else 0
    )


def prompt_of(message: inference_pb2.GenerateRequest, model: ServedModel) -> Prompt:
    """The one input. Raises InvalidRequest and ContextTooLong; ids are counted, not looked at."""
    kind = message.WhichOneof("input")
    if kind == "text":
        return TextPrompt(message.text)
    if kind == "tokens":
        check_num_tokens(len(message.tokens.ids), model.max_context_tokens)
        return TokenPrompt(list(message.tokens.ids))
    if kind == "chat":
        return _chat(message.chat)
    raise InvalidRequest("input is missing; set text, chat or tokens", param="input")


def _check_lists(wire: generation_pb2.SamplingParams) -> None:
    check_num_biases(len(wire.logit_bias))
    check_stops(tuple(wire.stop))
    if wire.HasField("grammar"):
        raise InvalidRequest(
            "sampling.grammar is a router's word to its workers; set structured_outputs",
            param="sampling.grammar",
        )


def _chat(chat: inference_pb2.Chat) -> ChatPrompt:
    check_num_messages(len(chat.messages))
    return ChatPrompt(
        tuple(
            (checked_role(message.role, f"messages[{i}].role"), message.content)
            for i, message in enumerate(chat.messages)
        )
    )
