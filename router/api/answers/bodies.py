"""The bodies of answers, in OpenAI's shapes."""

from __future__ import annotations

import msgspec

from cluster.generation import Timing
from cluster.models.hf.generation_defaults import GenerationDefaults


class PromptTokensDetails(msgspec.Struct):
    """`cached_tokens`: tokens of the prompt that were not computed again."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """`reasoning_tokens`: tokens of the answer that were thoughts. The others: what became of
    tokens that were guessed from a prediction; those rejected are not among `completion_tokens`."""

    reasoning_tokens: int | msgspec.UnsetType = msgspec.UNSET
    accepted_prediction_tokens: int | msgspec.UnsetType = msgspec.UNSET
    rejected_prediction_tokens: int | msgspec.UnsetType = msgspec.UNSET


class UsageBody(msgspec.Struct):
    """Counts of tokens, over all choices and prompts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | msgspec.UnsetType = msgspec.UNSET


class TopLogprob(msgspec.Struct):
    """One alternative of a chat token."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(msgspec.Struct):
    """One chat token."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """`logprobs` of a chat choice."""

    content: list[ChatLogprob]
    refusal: None = None


class ChatLogprobsInOne(msgspec.Struct):
    """As ChatLogprobs, encoded as they came."""

    content: msgspec.Raw
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """`logprobs` of a completion choice; `text_offset` counts characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionLogprobsInOne(msgspec.Struct):
    """As CompletionLogprobs, encoded as they came."""

    tokens: msgspec.Raw
    token_logprobs: msgspec.Raw
    top_logprobs: msgspec.Raw
    text_offset: msgspec.Raw


class PromptLogprob(msgspec.Struct):
    """One candidate for a place in the prompt, as vLLM tells it; `rank` is 1 for the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""By token id, for every token of the prompt; None for the first."""


class Message(msgspec.Struct):
    """The answer of a chat."""

    content: str
    role: str = "assistant"
    refusal: None = None


class FunctionCall(msgspec.Struct, omit_defaults=True):
    """Of a streamed call, `name` comes with its first piece alone."""

    arguments: str
    name: str | None = None


class ToolCall(msgspec.Struct):
    """A call of a tool, in an answer in one piece."""

    id: str
    function: FunctionCall
    type: str = "function"


class ToolCallDelta(msgspec.Struct, omit_defaults=True):
    """What is new in a call: `id` and `type` come with the first piece of it."""

    index: int
    function: FunctionCall
    id: str | None = None
    type: str | None = None


class ParsedMessage(msgspec.Struct):
    """The answer of a chat in which a parser looked for calls or thoughts."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct):
    """One whole chat choice."""

    index: int
    message: Message | ParsedMessage
    logprobs: ChatLogprobsInOne | None
    finish_reason: str


class ChatDelta(msgspec.Struct, omit_defaults=True):
    """What is new in a streamed chat choice."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(msgspec.Struct):
    """A streamed chat choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class CompletionChoice(msgspec.Struct):
    """A completion choice, whole or streamed."""

    index: int
    text: str
    logprobs: CompletionLogprobs | CompletionLogprobsInOne | None
    finish_reason: str | None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct, kw_only=True):
    """The envelope of everything; `splitserve` is our extension (see `timings`)."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice] | list[ChatChunkChoice] | list[CompletionChoice]
    usage: UsageBody | None | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    splitserve: Timing | msgspec.UnsetType = msgspec.UNSET


class ModelBody(msgspec.Struct):
    """An entry of /v1/models."""

    id: str
    created: int
    max_model_len: int
    default_sampling_params: GenerationDefaults = GenerationDefaults()
    object: str = "model"
    owned_by: str = "splitserve"
    parent: str | msgspec.UnsetType = msgspec.UNSET
    """Of an adapter: the model that it adds to."""


class ModelListBody(msgspec.Struct):
    """GET /v1/models."""

    data: list[ModelBody]
    object: str = "list"


class ErrorDetail(msgspec.Struct):
    """What went wrong; `code` is stable."""

    message: str
    type: str
    param: str | None
    code: str
    details: dict[str, float] | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct):
    """The envelope of an error."""

    error: ErrorDetail
