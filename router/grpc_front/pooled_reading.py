"""From messages to prompts that are pooled: the limits of HTTP, before the work."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError

from cluster.errors import InvalidRequest
from protos import inference_pb2
from router.front.generation_request import Prompt, TextPrompt, TokenPrompt
from router.front.pairs import prompts_of_pairs
from router.front.pooled_rest import PooledRest
from router.front.pooling_checks import MAX_INPUTS, check_embeds, check_input_tokens
from router.front.prompt_encoding import check_num_tokens
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

MAX_VALUES = 8 * 1024 * 1024
"""Of all embeddings of an answer: as many bytes as an answer over HTTP may have."""
MAX_ID_CHARS = 256
Message = TypeVar("Message", inference_pb2.EmbedRequest, inference_pb2.ScoreRequest)


def split_embed(model: ServedModel, raw: bytes) -> SplitBody:
    """An EmbedRequest. Raises InvalidRequest and its kin."""
    message = _parsed(inference_pb2.EmbedRequest, raw)
    dimensions = message.dimensions if message.HasField("dimensions") else None
    check_embeds(model, dimensions)
    num_inputs = len(message.inputs)
    if not 1 <= num_inputs <= MAX_INPUTS:
        raise InvalidRequest(f"{num_inputs} inputs; allowed: 1 to {MAX_INPUTS}", param="inputs")
    if num_inputs * (dimensions or model.hidden_size) > MAX_VALUES:
        raise InvalidRequest(
            f"{num_inputs} embeddings have more than {MAX_VALUES} values; send fewer inputs",
            param="inputs",
        )
    num_ids = sum(len(each.tokens.ids) for each in message.inputs)
    check_input_tokens(num_inputs, num_ids, "inputs")
    rest = _rest(model, message)
    rest.dimensions = dimensions
    prompts = [_prompt(each, model) for each in message.inputs]
    return SplitBody(msgspec.json.encode(rest), prompts)


def split_score(model: ServedModel, raw: bytes) -> SplitBody:
    """A ScoreRequest. Raises InvalidRequest and its kin."""
    message = _parsed(inference_pb2.ScoreRequest, raw)
    queries, documents = list(message.queries), list(message.documents)
    instruction = message.instruction if message.HasField("instruction") else None
    rest = _rest(model, message)
    rest.num_queries, rest.num_documents = len(queries), len(documents)
    prompts = prompts_of_pairs(model, queries, documents, instruction, Door.GRPC_SCORE)
    return SplitBody(msgspec.json.encode(rest), prompts)


def _parsed(kind: type[Message], raw: bytes) -> Message:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise InvalidRequest(f"the message is no {kind.__name__}") from None


def _rest(model: ServedModel, message: Message) -> PooledRest:
    rest = PooledRest.of(model, message.model, message.cache_salt)
    rest.request_id = message.request_id[:MAX_ID_CHARS]
    return rest


def _prompt(asked: inference_pb2.EmbedInput, model: ServedModel) -> Prompt:
    kind = asked.WhichOneof("input")
    if kind == "text":
        return TextPrompt(asked.text)
    if kind == "tokens":
        check_num_tokens(len(asked.tokens.ids), model.max_context_tokens)
        return TokenPrompt(list(asked.tokens.ids))
    raise InvalidRequest("an input is missing; set text or tokens", param="inputs")
