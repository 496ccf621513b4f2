"""Prompts of one request that become embeddings or scores, for HTTP and gRPC alike.

    prompts -> prepare: tokens -> limits, once for all -> several at a time: dispatcher -> values

What a key may have is reserved for all of them before the first is sent; what workers were given it
is charged. Each is a request of its own to the dispatcher: it waits, is counted, traced and tried
again as all are; but the others follow the first, and meet no full line, for a client that comes
again would find the middle no further off. The first that fails ends the others; so does a client
that leaves. All are of one version of their adapter: see one_version.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from cluster.adapter import Adapter
from cluster.errors import InternalError, NotReady, SplitserveError
from cluster.generation import Usage
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from router.dispatch.stream import ChoiceTokens, Completed, PoolWish, RoutedRequest
from router.dispatch.time_limits import TimeLimits
from router.front.caller import NOBODY, Caller
from router.front.generation_request import Prompt
from router.front.one_version import MAX_RUNS, again, never_one, outdated
from router.front.pipeline import CompletionPipeline
from router.front.pooling_checks import check_input_tokens, check_pooled
from router.front.prepared_generation import PreparedGeneration
from router.front.refusals import internal_error
from router.front.request_log import RequestLog
from router.front.served_model import ServedModel
from router.telemetry.request_trace import RequestTrace
from router.tenants.tenant import ANYBODY, Tenant, combined_salt
from router.text.choice_count import ChoiceCount, new_counts
from router.text.stop_strings import StopStrings

MAX_AT_ONCE = 16
"""Of one request, at the dispatcher: enough for a step of every worker of a small pool, while
others find places in its line."""
_NO_TOKENS = SamplingParams(max_tokens=0)
_NO_STOPS = StopStrings(())


class PooledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts with what is wanted of them all."""

    request_id: str
    """Unique in the fleet; each of several prompts has its number behind it."""
    prompts: Sequence[Prompt]
    limits: TimeLimits
    tenant: Tenant = ANYBODY
    caller: Caller = NOBODY
    param: str = "input"
    """What has the prompts, for messages."""
    dimensions: int | None = None
    """That an embedding is cut to; None: it is told whole."""
    cache_salt: str = ""
    adapter: str = ""
    """Its name; empty: the model alone."""
    traces: Sequence[RequestTrace | None] = ()
    """Of each prompt; empty: of none."""


class PooledValues(msgspec.Struct, frozen=True):
    """What became of one prompt."""

    values: bytes
    """float32, little-endian: an embedding, or the one value of a score."""
    usage: Usage
    adapter_digest: str = ""
    """Of the version that computed it; empty: the model alone."""


@dataclass(slots=True)
class _Spent:
    """What the inputs of one request have come to: of its first run, or of one that nobody pays."""

    num_tokens: int = 0
    """Of those that workers were given."""
    last: Completed | None = None


class PooledPrompts:
    """Of one router; holds no state of requests."""

    def __init__(self, model: ServedModel, pipeline: CompletionPipeline) -> None:
        self._model = model
        self._pipeline = pipeline

    async def prepare(self, request: PooledRequest) -> list[PreparedGeneration]:
        """Tokenizes and checks. Raises InvalidRequest and its kin; nothing is spent yet."""
        pooling = check_pooled(self._model, len(request.prompts), request.dimensions, request.param)
        adapter = self._pipeline.adapter_of(request.tenant, request.adapter, is_pooled=True)
        prepared: list[PreparedGeneration] = []
        num_tokens = 0
        for index, prompt in enumerate(request.prompts):
            until, caller = request.limits.to_first_token, request.caller
            token_ids = await self._pipeline.encode(prompt, until, caller)
            num_tokens += len(token_ids)
            check_input_tokens(index + 1, num_tokens, request.param)
            wish = PoolWish(pooling.kind.value, request.dimensions)
            prepared.append(_prepared(request, wish, adapter, index, token_ids))
        return prepared

    async def pooled(self, prepared: Sequence[PreparedGeneration]) -> list[PooledValues]:
        """Of each, in their order. Raises SplitserveError only; all have ended when it does."""
        num_tokens = sum(len(each.routed.token_ids) for each in prepared)
        log, spent = RequestLog(prepared[0].routed, num_tokens), _Spent()
        log.accepted()
        reservation = None
        try:
            if (account := prepared[0].account) is not None:
                reservation = await account.reserve(num_tokens, 0)
            values = await self._all(prepared, spent)
            if len(values) == 1 and spent.last is not None:
                log.completed(spent.last)
            else:
                log.completed_all(_together(values))
            return values
        except asyncio.CancelledError:
            log.cancelled(0)
            raise
        except SplitserveError as error:
            log.failed(error, 0)
            raise
        except Exception as cause:
            log.crashed(0)
            raise internal_error() from cause
        finally:
            if reservation is not None:
                reservation.settle(spent.num_tokens, 0)

    async def _all(
        self, prepared: Sequence[PreparedGeneration], spent: _Spent
    ) -> list[PooledValues]:
        if len(prepared) == 1:
            return [await self._run(prepared[0].routed, spent)]
        asked, done = [each.routed for each in prepared], dict[int, PooledValues]()
        left, run = dict(enumerate(asked)), spent
        for turn in range(1, MAX_RUNS + 1):
            await self._run_all(left, run, done)
            digests = {at: values.adapter_digest for at, values in done.items()}
            if not (late := outdated(asked[0], digests, self._model.find_pooling_adapter)):
                return [done[index] for index in range(len(asked))]
            left, run = {at: again(asked[at], turn) for at in late}, _Spent()  # once is paid for
        spent.num_tokens = 0
        raise never_one(asked[0])

    async def _run_all(
        self, left: Mapping[int, RoutedRequest], spent: _Spent, done: dict[int, PooledValues]
    ) -> None:
        """Several at a time; their values go to `done`."""
        waiting = iter(left.items())
        runs = [
            asyncio.create_task(self._run_each(waiting, spent, done))
            for _ in range(min(MAX_AT_ONCE, len(left)))
        ]
        try:
            await asyncio.gather(*runs)
        finally:
            await cancel(runs)

    async def _run_each(
        self,
        waiting: Iterator[tuple[int, RoutedRequest]],
        spent: _Spent,
        done: dict[int, PooledValues],
    ) -> None:
        """One after the other, as long as there are any."""
        for index, routed in waiting:
            await self._pipeline.share.breathe()
            done[index] = await self._run(routed, spent)

    async def _run(self, routed: RoutedRequest, spent: _Spent) -> PooledValues:
        """A prompt counts whole once a worker has it, and one that is refused not at all."""
        counts, is_refused = new_counts(1), False
        try:
            pooled, end = await self._answer(routed, counts)
        except NotReady:
            is_refused = True
            raise
        finally:
            if counts[0].is_sent and not is_refused:
                spent.num_tokens += len(routed.token_ids)
        spent.last = end
        return PooledValues(pooled, end.usage, end.adapter_digest)

    async def _answer(
        self, routed: RoutedRequest, counts: Sequence[ChoiceCount]
    ) -> tuple[bytes, Completed]:
        pooled, end = None, None
        async with aclosing(self._pipeline.source.generate(routed, counts)) as events:
            async for event in events:
                if isinstance(event, Completed):
                    end = event
                elif isinstance(event, ChoiceTokens):
                    pooled = event.pooled
        if pooled is None or end is None:
            raise InternalError("a prompt was not pooled, and no error was told")
        return pooled, end


def _together(values: Sequence[PooledValues]) -> Usage:
    """Of all of them."""
    return Usage(
        prompt_tokens=sum(each.usage.prompt_tokens for each in values),
        completion_tokens=0,
        cached_tokens=sum(each.usage.cached_tokens for each in values),
    )


def _prepared(
    request: PooledRequest,
    wish: PoolWish,
    adapter: Adapter | None,
    index: int,
    token_ids: list[int],
) -> PreparedGeneration:
    tenant, num_inputs = request.tenant, len(request.prompts)
    routed = RoutedRequest(
        request_id=f"{request.request_id}-{index}" if num_inputs > 1 else request.request_id,
        num_inputs=1 if index else num_inputs,
        follows=f"{request.request_id}-0" if index else "",
        token_ids=token_ids,
        sampling=_NO_TOKENS,
        tenant=tenant.name,
        weight=tenant.weight,
        priority=tenant.priority,
        tenant_salt=combined_salt(tenant.name, request.cache_salt),
        limits=request.limits,
        trace=request.traces[index] if request.traces else None,
        pool=wish,
        adapter=adapter,
    )
    return PreparedGeneration(routed, _NO_STOPS, keep_tokens=False, account=tenant.account)
