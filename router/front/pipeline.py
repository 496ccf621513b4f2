"""The one way from a client's request to its text, for HTTP and gRPC alike.

    GenerationRequest -> prepare: tokens, limits, seed -> PreparedGeneration
    PreparedGeneration -> stream: dispatcher -> ChoiceText per choice -> TextDelta* Completed
                                      ^-- a stop string ends it ---'

A request ends exactly once: with Completed or with a SplitserveError. Closing the stream
cancels the request on its workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import Random

import msgspec

from cluster.adapter import Adapter
from cluster.deadline import Deadline
from cluster.errors import SplitserveError
from cluster.generation import MAX_PREDICTION_TOKENS
from cluster.grammar import Grammar
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams
from router.dispatch.stream import (
    Completed,
    Newcomer,
    RoutedRequest,
    TokenSource,
)
from router.front.answer_bounds import answer_tokens, check_scored
from router.front.best_answers import best_answers
from router.front.caller import Caller
from router.front.events import DeltaTaker, TextEvent
from router.front.generation_request import (
    SEED_BITS,
    GenerationRequest,
    Prompt,
    TextPrompt,
    Wishes,
)
from router.front.grammar_checks import GrammarChecks
from router.front.held_answers import fitting
from router.front.prepared_generation import PreparedGeneration
from router.front.prompt_encoder import PromptEncoder, in_time
from router.front.refusals import internal_error
from router.front.request_log import RequestLog
from router.front.running_answer import RunningAnswer
from router.front.served_model import ServedModel
from router.front.spending import reserved, settle
from router.front.text_work import Door, ReadBody, TextWork
from router.pricing.answer_lengths import AnswerLengths
from router.tenants.tenant import Tenant, combined_salt
from router.text.choice_count import num_tokens_of
from router.tools.prompt_tail import opens_thought

SMALLEST_TOP_P = 1e-9
LONG_PROMPT_TOKENS = 2048
"""What follows of a shorter one takes no more than 0.2 ms for its length."""


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
        on_grammar_refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`chance` draws the seeds of prompts whose client asked for none. `share`: the one of its
        loop, where others work on it as well. `on_grammar_refused`: see GrammarChecks."""
        self._model = model
        self._source = source
        self._texts = texts
        self._chance = chance or Random()
        self.share = share or LoopShare()
        self._lengths = AnswerLengths()
        self._encoder = PromptEncoder(model, texts, self.share)
        self._grammars = GrammarChecks(texts, on_grammar_refused)

    @property
    def source(self) -> TokenSource:
        """Who runs requests."""
        return self._source

    def check_room(self, newcomer: Newcomer) -> None:
        """Before anything of a request is read. Raises QueueFull and Hopeless where it would be
        refused for the line's sake whatever it says."""
        self._source.check_room(newcomer)

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
        self._model.check_text()
        wishes, limit = request.wishes, self._model.max_context_tokens
        tenant = request.tenant
        adapter = self.adapter_of(tenant, wishes.adapter)
        token_ids = await self._encoder.encode(
            request.prompt,
            request.limits.to_first_token,
            max_context_tokens=limit,
            caller=request.caller,
        )
        if len(token_ids) > LONG_PROMPT_TOKENS:
            await self.share.breathe()  # to pack and send 100,000 takes 10 ms more
        sampling = self._resolve(wishes, len(token_ids), max_context_tokens=limit)
        sampling.check(self._model.vocab_size)
        sampling = fitting(wishes, sampling)
        if sampling.grammar is not None:
            grammar = await self._grammar_of(request, token_ids, sampling.grammar)
            sampling = msgspec.structs.replace(sampling, grammar=grammar)
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
            trace=request.trace,
            prediction=await self._prediction(request) if wishes.prediction else [],
            adapter=adapter,
        )
        return PreparedGeneration(
            routed,
            wishes.stops,
            wishes.keep_tokens or wishes.num_best is not None,
            account=tenant.account,
            text=wishes.text,
            is_silent=wishes.max_tokens == 0,
            num_best=wishes.num_best,
            tells_logprobs=wishes.tells_logprobs,
        )

    async def stream(
        self, prepared: PreparedGeneration, taker: DeltaTaker | None = None
    ) -> AsyncGenerator[TextEvent, None]:
        """Deltas as they come, then one Completed. Raises SplitserveError only.

        `taker`: is given deltas that come while the next event is waited for, and are then not
        among the events; never the first, nor any that carry tokens.
        """
        run = RunningAnswer(prepared, self._model, self.share, taker)
        log = RequestLog(prepared.routed)
        log.accepted()
        reservation, failure = None, None
        keeper = prepared.routed.keeper
        try:
            if keeper is not None:
                keeper.streams()
            reservation = await reserved(prepared)
            async with aclosing(_told(run.events(self._source), prepared)) as events:
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
            if keeper is not None:
                keeper.left(failure)
            num_searched = run.counts[0].num_searched_tokens
            settle(reservation, prepared, run.num_new_tokens, failure, num_searched=num_searched)

    async def _prediction(self, request: GenerationRequest) -> list[int]:
        """Of what is longer than an answer could be, or is looked at, the beginning."""
        limit = self._model.max_context_tokens
        text = (request.wishes.prediction or "")[: limit * self._model.max_token_bytes]
        token_ids = await self._encoder.encode(
            TextPrompt(text, add_special=False, keep_last=limit - 1),
            request.limits.to_first_token,
            max_context_tokens=limit,
            caller=request.caller,
        )
        return token_ids[:MAX_PREDICTION_TOKENS]

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
        return msgspec.structs.replace(
            asked,
            seed=self._chance.getrandbits(SEED_BITS) if wishes.seed is None else wishes.seed,
            max_tokens=answer_tokens(wishes, num_prompt_tokens, limit=max_context_tokens),
            min_tokens=0 if wishes.max_tokens == 0 else asked.min_tokens,
            top_k=0 if asked.top_k == -1 or asked.top_k >= vocab_size else asked.top_k,
            top_p=SMALLEST_TOP_P if asked.top_p == 0.0 else asked.top_p,
        )

    def adapter_of(self, tenant: Tenant, name: str, *, is_pooled: bool = False) -> Adapter | None:
        """By its name; empty: the model alone, None. Raises UnknownModel, or AdapterUnread, also of
        an adapter that the key is not for, which so learns of none, and NotAllowed for a key that
        is not for the model. `is_pooled`: an embedding or a score is wanted."""
        self._model.check_key(tenant, name)
        return self._model.adapter_named(name, is_pooled=is_pooled) if name else None

    async def _grammar_of(
        self, request: GenerationRequest, token_ids: list[int], grammar: Grammar
    ) -> Grammar:
        """Its tenant's own, as the answer is to follow it. Raises InvalidRequest."""
        grammar = self._grammar_after(token_ids, grammar, request.wishes.grammar_in_thought)
        return await self._tried(grammar, request)

    def _grammar_after(
        self, token_ids: list[int], grammar: Grammar, in_thought: Grammar | None
    ) -> Grammar:
        """That of an answer that begins inside a thought, where this one does."""
        model = self._model
        if in_thought is None or not opens_thought(
            model.manners.thoughts, token_ids, model.tokenizer
        ):
            return grammar
        return in_thought

    async def _tried(self, grammar: Grammar, request: GenerationRequest) -> Grammar:
        """As it is to be followed. Raises InvalidRequest for one that cannot be."""
        grammar, within = self._own(grammar, request), request.wishes.grammar_within
        async with in_time(request.limits.to_first_token):
            if within is not None:
                await self._grammars.check(self._own(within, request), request.caller)
            await self._grammars.check(grammar, request.caller)
        return grammar

    def _own(self, grammar: Grammar, request: GenerationRequest) -> Grammar:
        """Its tenant's, without text that reads like a special token."""
        return self._model.special_texts.spelled(grammar).owned_by(request.tenant.name)


def _told(
    events: AsyncGenerator[TextEvent, None], prepared: PreparedGeneration
) -> AsyncGenerator[TextEvent, None]:
    """Of all choices, or of the likeliest."""
    if prepared.num_best is None:
        return events
    return best_answers(events, prepared.num_best, tells_logprobs=prepared.tells_logprobs)
