"""Bodies of other APIs, translated to a chat's: from there on they are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from cluster.errors import InvalidRequest
from cluster.sampling import SamplingParams
from router.api.answers.chat_shape import ChatShape
from router.api.answers.shape import Envelope
from router.api.answers.telling_shape import Telling, TellingShape
from router.api.reading.chat_reader import ChatReader
from router.api.reading.field_names import FieldNames
from router.api.reading.plan import Plan
from router.api.reading.schema import ChatRequest
from router.front.generation_request import TokenPrompt
from router.front.text_work import SplitBody
from router.tools.answer_parser import Parsing

MakeTelling = Callable[[Envelope, Parsing], Telling]


class TranslatedReader(ChatReader):
    """See BodyReader. Of a large body a text worker hands the chat's own back."""

    names: ClassVar[FieldNames]

    def read(self, body: bytes) -> Plan:
        """See BodyReader."""
        with self.names.told():
            return super().read(body)

    def split(self, body: bytes) -> SplitBody:
        """See BodyReader."""
        with self.names.told():
            return super().split(body)

    def join(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> Plan:
        """See BodyReader."""
        with self.names.told():
            return super().join(rest, prompts)

    def _telling(self, request: ChatRequest) -> MakeTelling:
        """Of the answer to it."""
        raise NotImplementedError

    def shape_again(self, sampling: SamplingParams) -> ChatShape:
        """See BodyReader."""
        raise InvalidRequest("no stream of this path is resumable", param="last_event_id")

    def _shape(
        self,
        request: ChatRequest,
        parsing: Parsing | None,
        logprobs: int | None,
        prompt_logprobs: int | None,
        *,
        in_thought: bool,
    ) -> ChatShape:
        make, tokenizer = self._telling(request), self._model.tokenizer
        return TellingShape(tokenizer, parsing or Parsing(), make, is_thinking=in_thought)
