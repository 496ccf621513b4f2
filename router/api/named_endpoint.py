"""POST /v1/messages and POST /v1/responses: the same way as a chat's, told in other words."""

from __future__ import annotations

from functools import partial

from router.api.answers.shape import AnswerShape, Envelope
from router.api.answers.tally import Tally
from router.api.generation_endpoint import GenerationEndpoint, HttpContext
from router.api.http.exchange import Exchange
from router.api.named_generation import NamedGeneration
from router.api.reading.plan import AnswerOptions, Plan
from router.api.reading.translated_reader import TranslatedReader
from router.dispatch.time_limits import TimeLimits
from router.front.prepared_generation import PreparedGeneration
from router.front.resumption import Resumable


class NamedEndpoint(GenerationEndpoint):
    """An ASGI application for one path; its reader makes TellingShapes of one choice."""

    def __init__(self, context: HttpContext, reader: TranslatedReader) -> None:
        super().__init__(context, reader)
        self._names = reader.names

    async def _prepare(
        self, plan: Plan, exchange: Exchange, limits: TimeLimits
    ) -> list[PreparedGeneration]:
        with self._names.told():
            return await super()._prepare(plan, exchange, limits)

    def _generation(
        self,
        prepared: list[PreparedGeneration],
        shape: AnswerShape,
        envelope: Envelope,
        options: AnswerOptions,
        resumable: Resumable | None,
    ) -> NamedGeneration:
        num_tokens = [len(each.routed.token_ids) for each in prepared]
        return NamedGeneration(
            begin=partial(self._events, prepared),
            shape=shape,
            envelope=envelope,
            tally=Tally(num_tokens, shape.thought_tokens),
            num_choices=1,
            num_prompts=1,
            options=options,
            share=self._door.share,
            ping_interval_s=self._door.door_limits.ping_interval_s,
        )
