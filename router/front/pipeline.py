"""The one way from a client's request to its text, for HTTP and gRPC alike.

    GenerationRequest -> prepare: tokens, limits, seed -> PreparedGeneration
    PreparedGeneration -> stream: dispatcher -> ChoiceText per choice -> TextDelta* Completed
                                      ^-- a stop string ends it ---'

A request ends exactly once: with Completed or with a SplitserveError. Closing the stream
cancels the request on its workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random

from cluster.deadline import Deadline
from cluster.errors import (
    ContextTooLong,
    InternalError,
    InvalidRequest,
    SplitserveError,
)
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams, in_words
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    PromptTokens,
    RoutedRequest,
    TokenSource,
)
from router.front.caller import Caller
from router.front.events import TextEvent
from router.front.gathered_prompt import GatheredPrompt
from router.front.generation_request import (
    SEED_BITS,
    GenerationRequest,
    Prompt,
    TextOptions,
    Wishes,
)
from router.front.prompt_encoder import PromptEncoder, in_time
from router.front.refusals import internal_error
from router.front.request_log import RequestLog
from router.front.served_model import ServedModel
from router.front.spending import reserved, settle
from router.front.text_work import Door, ReadBody, TextWork
from router.pricing.answer_lengths import AnswerLengths
from router.tenants.account import Account
from router.tenants.tenant import combined_salt
from router.text.choice import ChoiceText, SilentChoice, TextDelta
from router.text.choice_count import ChoiceCount, new_counts, num_tokens_of
from router.text.stop_strings import StopStrings

PROMPT_TAIL_TOKENS = 8
"""What a detokenizer needs to know whether a space belongs between prompt and answer."""
MAX_PROMPT_LOGPROBS = 1 << 16
"""In one answer: about 4 MB of it, and 15 ms to encode at its end."""
SMALLEST_TOP_P = 1e-9


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A request that passed every check and is ready for the dispatcher."""

    routed: RoutedRequest
    stops: StopStrings
    keep_tokens: bool
    account: Account | None = None
    """Of the key that asks; None: nothing is counted."""
    text: TextOptions = TextOptions()
    is_silent: bool = False
    """Nothing is generated, as far as the client can tell."""


class CompletionPipeline:
    """Shared by all requests; holds no state of theirs."""

    def __init__(
        self,
        model: ServedModel,
        source: TokenSource,
        texts: TextWork,
        *,
        chance: Random | None = None,
        share: LoopShare | None = None,
    ) -> None:
        """`chance` draws the seeds of prompts whose client asked for none. `share`: the one of its
        loop, where others work on it as well."""
        self._model = model
        self._source = source
        self._texts = texts
        self._chance = chance or Random()
        self.share = share or LoopShare()
        self._lengths = AnswerLengths()
        self._encoder = PromptEncoder(model, texts, self.share)

    async def read_large(
        self, door: Door, body: bytes, deadline: Deadline, caller: Caller
    ) -> ReadBody:
        """A body over LARGE_BODY_BYTES, read elsewhere. Raises InvalidRequest and its kin."""
        limit = self._model.max_context_tokens
        async with in_time(deadline):
            return await self._texts.read(door, body, limit, caller)

    async def prepare(self, request: GenerationRequest) -> PreparedGeneration:
        """Tokenizes and checks. Raises InvalidRequest and its kin; nothing is spent yet.

        Workers that leave meanwhile change nothing: routing knows who has room then.
        """
        wishes, limit = request.wishes, self._model.max_context_tokens
        tenant = request.tenant
        token_ids = await self._encoder.encode(
            request.prompt,
            request.limits.to_first_token,
            max_context_tokens=limit,
            caller=request.caller,
        )
        sampling = self._resolve(wishes, len(token_ids), max_context_tokens=limit)
        sampling.check(self._model.vocab_size)
        routed = RoutedRequest(
            request_id=request.request_id,
            token_ids=token_ids,
            sampling=sampling,
            is_default_length=wishes.max_tokens is None,
            tenant=tenant.name,
            weight=tenant.weight,
            priority=tenant.priority,
            expected_tokens=self._lengths.expected(sampling.max_tokens),
            tenant_salt=combined_salt(tenant.name, wishes.cache_salt),
            limits=request.limits,
        )
        return PreparedGeneration(
            routed,
            wishes.stops,
            wishes.keep_tokens,
            account=tenant.account,
            text=wishes.text,
            is_silent=wishes.max_tokens == 0,
        )

    async def stream(self, prepared: PreparedGeneration) -> AsyncGenerator[TextEvent, None]:
        """Deltas as they come, then one Completed. Raises SplitserveError only."""
        run = _Run(prepared, self._model)
        log = RequestLog(prepared.routed)
        log.accepted()
        reservation, failure = None, None
        try:
            reservation = await reserved(prepared.account, prepared.routed)
            async with aclosing(run.events(self._source)) as events:
                async for event in events:
                    if isinstance(event, Completed):
                        log.completed(event)
                        self._lengths.learn(event.usage, len(run.counts))
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            log.cancelled(num_tokens_of(run.counts))
            raise
        except SplitserveError as error:
            failure = error
            log.failed(error, num_tokens_of(run.counts))
            raise
        except Exception as cause:
            log.crashed(num_tokens_of(run.counts))
            raise internal_error() from cause
        finally:
            settle(reservation, prepared.routed, num_tokens_of(run.counts), failure)

    async def encode(self, prompt: Prompt, deadline: Deadline, caller: Caller) -> list[int]:
        """Token ids. Raises InvalidRequest and its kin, DeadlineExceeded."""
        limit = self._model.max_context_tokens
        return await self._encoder.encode(prompt, deadline, max_context_tokens=limit, caller=caller)

    def _resolve(
        self, wishes: Wishes, num_prompt_tokens: int, *, max_context_tokens: int
    ) -> SamplingParams:
        """Takes what other servers take and means something plain: top_k of the whole vocabulary is
        off, top_p of nothing leaves the likeliest token."""
        asked, vocab_size = wishes.sampling, self._model.vocab_size
        check_scored(asked, num_prompt_tokens)
        return replace(
            asked,
            seed=self._chance.getrandbits(SEED_BITS) if wishes.seed is None else wishes.seed,
            max_tokens=_max_tokens(wishes, num_prompt_tokens, limit=max_context_tokens),
            min_tokens=0 if wishes.max_tokens == 0 else asked.min_tokens,
            top_k=0 if asked.top_k == -1 or asked.top_k >= vocab_size else asked.top_k,
            top_p=SMALLEST_TOP_P if asked.top_p == 0.0 else asked.top_p,
        )


def _max_tokens(wishes: Wishes, num_prompt_tokens: int, *, limit: int) -> int:
    """Raises InvalidRequest for nothing at all, and ContextTooLong."""
    room = limit - num_prompt_tokens
    if wishes.max_tokens is None:
        default = wishes.default_max_tokens
        return room if default is None else min(default, room)
    if wishes.max_tokens == 0:
        if not wishes.tells_prompt:
            raise InvalidRequest(
                "max_tokens is 0, which asks for nothing without echo or prompt_logprobs",
                param="max_tokens",
            )
        return 1  # the engine gives a first token with the prompt: nobody asked for it
    if wishes.max_tokens > room:
        raise ContextTooLong(
            f"the prompt has {num_prompt_tokens} tokens and max_tokens is "
            f"{in_words(wishes.max_tokens)}; this model's context is {limit} tokens: "
            f"ask for at most {room}",
            param="max_tokens",
        )
    return wishes.max_tokens


def check_scored(sampling: SamplingParams, num_prompt_tokens: int) -> None:
    """Raises InvalidRequest for more logprobs than one answer may hold; the tokens are those of all
    of its prompts."""
    if sampling.prompt_logprobs is None:
        return
    count = num_prompt_tokens * sampling.n * (1 + sampling.prompt_logprobs)
    if count > MAX_PROMPT_LOGPROBS:
        raise InvalidRequest(
            f"{num_prompt_tokens} prompt tokens with {sampling.prompt_logprobs} alternatives each "
            f"are {in_words(count)} logprobs; allowed: {MAX_PROMPT_LOGPROBS}: "
            "ask for fewer, or send less",
            param="prompt_logprobs",
        )


class _Run:
    """The choices of one request while it runs."""

    def __init__(self, prepared: PreparedGeneration, model: ServedModel) -> None:
        self._prepared = prepared
        self._model = model
        self._routed = prepared.routed
        self.counts = new_counts(prepared.routed.sampling.n)
        self._prompt = GatheredPrompt(prepared.routed)
        self._choices: list[ChoiceText | SilentChoice] = []
        """Made with the first tokens: who waits for a place, or gets none, has cost nothing."""

    async def events(self, source: TokenSource) -> AsyncGenerator[TextEvent, None]:
        async with aclosing(source.generate(self._routed, self.counts)) as stream:
            async for event in stream:
                if isinstance(event, Completed):
                    self._check_that_all_ended()
                    yield event
                    return
                if isinstance(event, PromptTokens):
                    self._prompt.take(event)
                    continue
                deltas = self._push(event)
                if (scored := self._prompt.whole()) is not None:
                    yield scored
                for delta in deltas:
                    yield delta
        raise InternalError("the generation ended without a result")

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
