"""The bodies of requests, exactly as OpenAI's clients send them, plus our documented extensions.

Unknown fields are errors. A null is the same as an absent field. What is known but not implemented
is declared here so that it can be refused by name (`router/api/reading/unsupported.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from router.api.reading.tool_schema import MessageCall, NamedChoice, ToolDefinition


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`; obfuscation is accepted and never added."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class ContentPart(msgspec.Struct):
    """One part of a message; only text parts are served."""

    type: str
    text: str | None = None


class PredictedContent(msgspec.Struct, forbid_unknown_fields=True):
    """`prediction`: what the answer is expected to be."""

    type: str
    content: str | list[ContentPart]


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One message. The fields after `name` may be present but empty, as in an echoed answer."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class SamplingFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What both endpoints share."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None

    # Extensions: the engine's own parameters.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    cache_salt: str | None = None
    timings: bool | None = None
    resumable: bool | None = None
    timeout_s: float | None = None
    prompt_logprobs: int | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: Any = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None

    # What the answer is to be: read by answer_format.py.
    response_format: Any = None
    structured_outputs: Any = None

    # Accepted, without effect here.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    request_id: str | None = None
    priority: int | None = None
    spaces_between_special_tokens: bool | None = None
    mm_processor_kwargs: Any = None

    # Known, not implemented.
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    detokenize: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    logits_processors: Any = None
    logprob_token_ids: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_decoding_backend: Any = None
    guided_whitespace_pattern: Any = None
    kv_transfer_params: Any = None
    vllm_xargs: Any = None
    repetition_detection: Any = None


class ChatRequest(SamplingFields, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    tools: list[ToolDefinition] | None = None
    tool_choice: str | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_format: str | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prediction: PredictedContent | None = None

    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    echo: bool | None = None
    documents: Any = None
    chat_template: Any = None
    thinking_token_budget: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    verbosity: Any = None
    web_search_options: Any = None


class CompletionRequest(SamplingFields, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None

    suffix: Any = None
    prompt_embeds: Any = None


class ChatRendering(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What /tokenize asks of a chat."""

    model: str | None = None
    messages: list[ChatMessage]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None
    tools: list[ToolDefinition] | None = None
    reasoning_effort: str | None = None
    chat_template: Any = None


class TextEncoding(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What /tokenize asks of a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenDecoding(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
