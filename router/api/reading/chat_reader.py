"""Bodies of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from cluster.errors import InvalidRequest
from cluster.sampling import SamplingParams
from router.api.answers.chat_shape import ChatShape
from router.api.answers.parsed_chat_shape import TOOL_CALLS, ParsedChatShape
from router.api.reading import sampling
from router.api.reading.answer_forms import forms_of
from router.api.reading.called_form import called_form, named_in
from router.api.reading.chat_messages import predicted_text, to_pairs
from router.api.reading.decode import decode, decode_known
from router.api.reading.plan import Plan
from router.api.reading.prompts import kept_tokens
from router.api.reading.rendering import rendering_of
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import continues_thought, parsing_of, talk_of
from router.api.reading.tool_kinds import compact, kept_bytes
from router.api.reading.tools import check_choice, checked_tools
from router.api.reading.unsupported import check_chat
from router.front.chat_rules import check_num_messages
from router.front.generation_request import (
    ChatPrompt,
    Prompt,
    TextOptions,
    TokenPrompt,
    Wishes,
)
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody
from router.grammar.call_grammar import CallGrammars
from router.tools.answer_parser import Parsing

_DECODER = msgspec.json.Decoder(ChatRequest)
_NAMED = "stop"
"""OpenAI's finish reason, and vLLM's, of an answer that calls what its client has named."""


class _Rest(msgspec.Struct, frozen=True):
    """Of a chat whose prompt was taken out."""

    request: ChatRequest
    form: CallGrammars | None
    in_thought: bool
    """Its last message, which the answer goes on with, has begun one."""


_REST_DECODER = msgspec.json.Decoder(_Rest)


class ChatReader:
    """Reads chats for one model."""

    door: Door = Door.CHAT
    id_prefix: ClassVar[str] = "chatcmpl"

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def read(self, body: bytes) -> Plan:
        """See BodyReader."""
        request, ignored = self._checked(body)
        prompts = (self._prompt(request),)
        in_thought = continues_thought(request, self._model)
        parsing = self._parsing(request)
        form = called_form(request, self._model, parsing)
        plan = self._plan(request, prompts, form, parsing, in_thought=in_thought)
        return msgspec.structs.replace(plan, ignored=ignored) if ignored else plan

    def split(self, body: bytes) -> SplitBody:
        """See BodyReader."""
        request, ignored = self._checked(body)
        prompts = (self._prompt(request),)
        parsing = self._parsing(request)
        form = called_form(request, self._model, parsing)
        in_thought = continues_thought(request, self._model)
        request.messages, request.tools = [], compact(request.tools, parsing)
        # what is wrong beside the prompts is refused by name
        plan = self._plan(request, (), form, parsing, in_thought=in_thought)
        limited = (plan.wishes.prediction, form)  # by limits of their own
        num_limited = kept_bytes(request.tools) + len(msgspec.json.encode(limited))
        rest = msgspec.json.encode(_Rest(request, form, in_thought))
        return SplitBody(rest, prompts, ignored=ignored, num_limited_bytes=num_limited)

    def shape_again(self, sampling: SamplingParams) -> ChatShape:
        """See BodyReader."""
        has_logprobs = sampling.logprobs is not None
        return ChatShape(self._model.tokenizer, logprobs=has_logprobs, prompt_logprobs=None)

    def join(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> Plan:
        """See BodyReader."""
        left = decode(rest, _REST_DECODER)
        request, parsing = left.request, self._parsing(left.request)
        return self._plan(request, tuple(prompts), left.form, parsing, in_thought=left.in_thought)

    def _decoded(self, body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
        """Not looked at yet."""
        return decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)

    def _checked(self, body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
        """The request, and the names of what was left out."""
        request, ignored = self._decoded(body)
        check_num_messages(len(request.messages))
        check_chat(request)
        if request.tools is not None or request.tool_choice is not None:
            checked_tools(request.tools or [])
            check_choice(request)
        return request, ignored

    def _prompt(self, request: ChatRequest) -> ChatPrompt:
        keep_last = kept_tokens(
            request.truncate_prompt_tokens,
            max_tokens=sampling.max_tokens_of_chat(request),
            max_context_tokens=self._model.max_context_tokens,
        )
        return ChatPrompt(
            to_pairs(request.messages),
            rendering_of(request, self._model),
            keep_last,
            talk_of(request, self._model),
        )

    def _plan(
        self,
        request: ChatRequest,
        prompts: tuple[Prompt, ...],
        form: CallGrammars | None,
        parsing: Parsing | None,
        *,
        in_thought: bool,
    ) -> Plan:
        logprobs = sampling.logprobs_of_chat(request)
        prompt_logprobs = sampling.prompt_logprobs_of(request)
        forms = forms_of(request, self._model, form)
        starting = forms.in_thought if in_thought and forms.in_thought else forms.plain
        return Plan(
            prompts=prompts,
            wishes=Wishes(
                sampling=sampling.sampling_of(
                    request,
                    self._model.defaults,
                    logprobs=logprobs,
                    prompt_logprobs=prompt_logprobs,
                    form=starting,
                ),
                num_best=sampling.num_best_of(request),
                tells_logprobs=logprobs is not None,
                grammar_in_thought=forms.in_thought,
                grammar_within=forms.within,
                max_tokens=sampling.max_tokens_of_chat(request),
                seed=sampling.seed_of(request),
                default_max_tokens=self._model.defaults.max_new_tokens,
                stop=sampling.stops_of(request),
                cache_salt=sampling.salt_of(request),
                adapter=self._model.adapter_name_in(request.model),
                text=self._text_options(request, parsing),
                keep_tokens=logprobs is not None,
                prediction=predicted_text(request.prediction) if request.prediction else None,
            ),
            timeout_s=request.timeout_s,
            shape=self._shape(request, parsing, logprobs, prompt_logprobs, in_thought=in_thought),
            options=sampling.answer_options_of(request),
            id_prefix=self.id_prefix,
        )

    def _parsing(self, request: ChatRequest) -> Parsing | None:
        """Streams that are resumable tell thoughts in the content: from the middle of a text nobody
        knows what was told of it as what."""
        parsing = parsing_of(request, self._model)
        if parsing is None or not request.resumable:
            return parsing
        if parsing.tools is not None or request.reasoning_format is not None:
            raise InvalidRequest(
                "resumable goes with neither tools nor reasoning that is told apart; leave tools "
                "and reasoning_format out",
                param="resumable",
            )
        return None

    def _text_options(self, request: ChatRequest, parsing: Parsing | None) -> TextOptions:
        """The words that a parser looks for have to be in the text."""
        options = sampling.text_options_of(request)
        if parsing is None:
            return options
        manners = self._model.manners
        hides_calls = parsing.tools is not None and manners.hides_calls
        hides_thoughts = parsing.thoughts is not None and manners.hides_thoughts
        if hides_calls or hides_thoughts:
            return msgspec.structs.replace(options, shows_special=True)
        return options

    def _shape(
        self,
        request: ChatRequest,
        parsing: Parsing | None,
        logprobs: int | None,
        prompt_logprobs: int | None,
        *,
        in_thought: bool,
    ) -> ChatShape:
        tokenizer, tells = self._model.tokenizer, logprobs is not None
        if parsing is None:
            return ChatShape(tokenizer, logprobs=tells, prompt_logprobs=prompt_logprobs)
        return ParsedChatShape(
            tokenizer,
            parsing,
            logprobs=tells,
            prompt_logprobs=prompt_logprobs,
            tells_thoughts=request.include_reasoning is not False,
            call_reason=TOOL_CALLS if named_in(request) is None else _NAMED,
            is_thinking=in_thought,
        )
