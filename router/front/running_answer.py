"""The choices of one request while it runs: from its workers' tokens to what its client is told.

told before -> told again (an earlier connection's part) -> ChoiceText per choice -> TextDelta*
tokens come -> kept, where another connection may go on -----^                       Completed
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from cluster.errors import InternalError
from cluster.generation import BegunChoice, Timing, Usage
from cluster.process.loop_share import LoopShare
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    PromptTokens,
    RoutedRequest,
    TokenSource,
)
from router.fleet.token_taker import TakerFault, TokenTaker
from router.front.events import DeltaTaker, TextEvent
from router.front.gathered_prompt import GatheredPrompt
from router.front.prepared_generation import PreparedGeneration
from router.front.served_model import ServedModel
from router.resume.past_answer import PastAnswer
from router.text.choice import ChoiceText, SilentChoice, TextDelta
from router.text.choice_count import ChoiceCount, new_counts, num_tokens_of

MAX_TOLD_TOKENS = 256
"""Put into text at once: about a millisecond."""
PROMPT_TAIL_TOKENS = 8
"""What a detokenizer needs to know whether a space belongs between prompt and answer."""


class RunningAnswer:
    """One for each time that a request runs."""

    def __init__(
        self,
        prepared: PreparedGeneration,
        model: ServedModel,
        share: LoopShare,
        taker: DeltaTaker | None = None,
    ) -> None:
        """`taker`: of deltas that come while `events` is waited for, but for the first."""
        self._prepared = prepared
        self._model = model
        self._share = share
        self._routed = prepared.routed
        self.counts = new_counts(prepared.routed.sampling.n)
        self._prompt = GatheredPrompt(prepared.routed)
        self._choices: list[ChoiceText | SilentChoice] = []
        """Made with the first tokens: who waits for a place, or gets none, has cost nothing."""
        self._num_old_tokens = 0
        takes_all = not prepared.keep_tokens and prepared.routed.sampling.beams is None
        self._taker = taker if takes_all else None

    @property
    def num_new_tokens(self) -> int:
        """That count, over all choices, without those that an earlier connection was told."""
        return num_tokens_of(self.counts) - self._num_old_tokens

    async def events(self, source: TokenSource) -> AsyncGenerator[TextEvent, None]:
        """Until the end; what the taker is given is not among them."""
        if (past := self._prepared.past) is not None:
            async for delta in self._told_again(past):
                yield delta
            if (end := self._end_of(past)) is not None:
                yield end
                return
        direct = None if self._taker is None else _Direct(self, self._taker)
        try:
            async with aclosing(source.generate(self._rest(), self.counts, direct)) as stream:
                async for event in stream:
                    if isinstance(event, Completed):
                        self._check_that_all_ended()
                        self._keep_end(event)
                        yield event
                        return
                    if isinstance(event, PromptTokens):
                        self._prompt.take(event)
                        continue
                    if len(event.tokens) > MAX_TOLD_TOKENS:
                        if (scored := self._prompt.whole()) is not None:
                            yield scored
                        async for delta in self._told_in_parts(event):
                            yield delta
                        continue
                    deltas = self.told(event)
                    if (scored := self._prompt.whole()) is not None:
                        yield scored
                    for delta in deltas:
                        yield delta
        except TakerFault as fault:  # our own
            raise fault.cause from None
        raise InternalError("the generation ended without a result")

    def told(self, event: ChoiceTokens) -> Iterable[TextDelta]:
        """What the client is told of them, to be read to its end before what comes next."""
        if self._routed.keeper is not None:
            self._routed.keeper.relayed(event)
        return self._push(event)

    async def _told_in_parts(self, event: ChoiceTokens) -> AsyncGenerator[TextDelta, None]:
        """Of a beam search all tokens come at once; the loop is let go between two parts."""
        tokens = event.tokens
        for first in range(0, len(tokens), MAX_TOLD_TOKENS):
            part = tokens[first : first + MAX_TOLD_TOKENS]
            is_last = first + MAX_TOLD_TOKENS >= len(tokens)
            reason = event.finish_reason if is_last else None
            for delta in self.told(ChoiceTokens(event.choice, part, reason)):
                yield delta
            await self._share.breathe()

    def _keep_end(self, event: Completed) -> None:
        if self._routed.keeper is not None:
            self._routed.keeper.completed(event)

    async def _told_again(self, past: PastAnswer) -> AsyncGenerator[TextDelta, None]:
        """What an earlier connection was told."""
        for told in past.told:
            self.counts[told.choice].gave(len(told.tokens))
            for delta in self._push(told):
                yield delta
            await self._share.breathe()
        self._num_old_tokens = num_tokens_of(self.counts)

    def _end_of(self, past: PastAnswer) -> Completed | None:
        """Where nothing is left to generate."""
        if not past.told or self._open_choices():
            return None
        first_part = self._routed.first_part
        num_cached = 0 if first_part is None else first_part.cached_tokens
        usage = Usage(len(self._routed.token_ids), num_tokens_of(self.counts), num_cached)
        return past.end or Completed(usage, Timing())

    def _rest(self) -> RoutedRequest:
        """What is left to generate, from the tokens that were told."""
        past = self._prepared.past
        if past is None or not past.told:
            return self._routed
        begun = [BegunChoice(index, past.token_ids_of(index)) for index in self._open_choices()]
        return self._routed.going_on(begun, self._routed.limits)

    def _open_choices(self) -> list[int]:
        return [index for index, each in enumerate(self._choices) if each.finish_reason is None]

    def _new_choice(self, index: int, count: ChoiceCount) -> ChoiceText | SilentChoice:
        prepared = self._prepared
        if prepared.is_silent:
            return SilentChoice(index, count)
        return ChoiceText(
            index,
            count,
            self._model.tokenizer.new_stream(
                prepared.routed.token_ids[-PROMPT_TAIL_TOKENS:],
                shows_special=prepared.text.shows_special,
            ),
            prepared.stops.automaton,
            min_tokens=prepared.routed.sampling.min_tokens,
            keep_tokens=prepared.keep_tokens,
            includes_stop=prepared.text.includes_stop,
        )

    def _push(self, event: ChoiceTokens) -> Iterable[TextDelta]:
        if not self._choices:
            self._choices = [self._new_choice(*each) for each in enumerate(self.counts)]
        if not 0 <= event.choice < len(self._choices):
            raise InternalError(f"tokens came for choice {event.choice} of {len(self._choices)}")
        choice = self._choices[event.choice]  # a stop ends it at its source at once
        return choice.push(event.tokens, event.finish_reason)

    def _check_that_all_ended(self) -> None:
        if not self._choices or any(each.finish_reason is None for each in self._choices):
            raise InternalError("the generation ended before all of its choices did")


class _Direct(TokenTaker):
    """An answer's tokens, put into words where they are handed on."""

    def __init__(self, answer: RunningAnswer, taker: DeltaTaker) -> None:
        self._answer = answer
        self._taker = taker
        self.is_ready = taker.is_ready  # type: ignore[method-assign]  # asked with every token

    def is_ready(self) -> bool:
        return self._taker.is_ready()

    def take(self, tokens: ChoiceTokens) -> None:
        for delta in self._answer.told(tokens):
            self._taker.take(delta)
