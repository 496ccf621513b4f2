"""Bodies of other APIs, translated to a chat's: from there on they are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from cluster.errors import InvalidRequest
from cluster.sampling import SamplingParams
from router.api.answers.chat_shape import ChatShape
from router.api.answers.shape import Envelope
from router.api.answers.telling_shape import Telling, TellingShape
from router.api.reading.chat_reader import ChatReader
from router.api.reading.plan import Plan
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import parsing_of
from router.front.generation_request import Prompt
from router.grammar.call_grammar import CallGrammars
from router.tools.answer_parser import Parsing

MakeTelling = Callable[[Envelope, Parsing], Telling]


class TranslatedReader(ChatReader):
    """See BodyReader. Of a large body a text worker hands the chat's own back."""

    id_prefix: ClassVar[str]

    def _telling(self, request: ChatRequest) -> MakeTelling:
        """Of the answer to it."""
        raise NotImplementedError

    def shape_again(self, sampling: SamplingParams) -> ChatShape:
        """See BodyReader."""
        raise InvalidRequest("no stream of this path is resumable", param="last_event_id")

    def _plan(
        self,
        request: ChatRequest,
        prompts: tuple[Prompt, ...],
        form: CallGrammars | None,
        *,
        in_thought: bool,
    ) -> Plan:
        plan = super()._plan(request, prompts, form, in_thought=in_thought)
        parsing = parsing_of(request, self._model) or Parsing()
        make, tokenizer = self._telling(request), self._model.tokenizer
        shape = TellingShape(tokenizer, parsing, make, is_thinking=in_thought)
        return msgspec.structs.replace(plan, shape=shape, id_prefix=self.id_prefix)
