"""One request at vLLM servers, from its submission to its end.

    asked at a prefill server -> asked at the decode server with its blocks -> relayed -> ended
       '-- failed --> asked at the decode server alone          <--'-- late, or failed unrelayed
                         '-- another's read was late --> the same, under a salt of its own
    relayed -- begun anew by its server, of what another one read late --> its end

A prefill server's parameters are made for this request alone, and go out once. What fails after
something was relayed, or at a decode server by itself, is the request's end: the dispatcher may go
on elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from cluster.deadline import Clock, Deadline, deadline_passed
from cluster.errors import InternalError, SplitserveError, TransferFailed, WorkerLost
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.tracing.context import context_from_wire
from protos import generation_pb2, worker_pb2
from router.fleet.request_stream import RequestStream
from router.vllm.begun_answers import BegunAnswer
from router.vllm.cache_doubts import CacheDoubts, OthersLateRead
from router.vllm.completion_body import COMPLETIONS, completion_body, decode_body
from router.vllm.kept_blocks import KeptBlocks
from router.vllm.open_read import Beginning, OpenRead
from router.vllm.prefill_request import PrefillRequest
from router.vllm.relay import Relay
from router.vllm.server import VllmServer, salt_of
from router.vllm.server_numbers import ServerNumbers
from router.vllm.servers import ServerPair
from router.vllm.vllm_grammar import check_version
from router.vllm.wire import NO_HEADERS, SentHeaders

TRANSPORT = "vllm/nixl"
PREFILL_SHARE = 0.5
"""Of a request's time to its first token, for the prefill server: one whose engine stands still
answers looks, and never this. The rest is for a decode server that computes the prompt itself."""
_log = get_logger("vllm")


class VllmRequest:
    """`run` once, in a task that is cancelled when nobody waits for the request any more."""

    def __init__(
        self,
        submit: worker_pb2.Submit,
        stream: RequestStream,
        pair: ServerPair,
        *,
        doubts: CacheDoubts,
        clock: Clock,
        on_handoff: Callable[[WorkerKey, bool], None],
        flush: Callable[[], None],
    ) -> None:
        """`doubts`: about the decode server's cache. `on_handoff`: see LinkEvents. `flush`: what
        arrived together has been told."""
        self._submit, self._headers = submit, _trace_of(submit)
        self._stream = stream
        self._server, self._prefill = pair.decode, pair.prefill
        self._doubts = doubts
        self._clock = clock
        self._on_handoff = on_handoff
        self._flush = flush
        self._own_end: str | None = None
        """Of a salt under which nobody else finds or caches anything."""
        self._begun: BegunAnswer | None = None
        """Once something of it was believed under a salt that others have, too."""
        self._relay: Relay | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """The stream has ended when this returns, with an error where there is one."""
        deadline = Deadline.after(self._submit.timeout_ms / 1000, self._clock)
        self._task = asyncio.current_task()
        self._server.num_asked += 1
        try:
            async with deadline.bound():
                await self._answered()
        except TimeoutError:
            asked_s = self._submit.asked_s if self._submit.HasField("asked_s") else None
            self._stream.fail(deadline_passed(asked_s))
        except SplitserveError as error:
            self._stream.fail(self._named(error))
        except Exception as error:
            _log.exception("an answer of a vLLM server could not be handled")
            self._stream.fail(InternalError(f"{self._server.name}: {type(error).__name__}"))
        finally:
            self._server.num_asked -= 1
            if self._begun is not None:
                self._doubts.over(self._begun)
            self._flush()

    def finish(self, choice: int) -> None:
        """The reader has seen enough of it; with its last choice the request ends well."""
        if self._relay is not None and self._relay.finish(choice):
            asyncio.get_running_loop().call_soon(self._end_early)

    async def _answered(self) -> None:
        if self._server.member is None:
            raise WorkerLost("is not there any more")
        read = await self._opened()
        error = None if read is None else await self._tried(read)
        if read is None or error is not None:
            await self._alone()
        if read is not None and not isinstance(error, OthersLateRead):
            self._note_handoff(failed=error is not None)

    async def _opened(self) -> OpenRead | None:
        """What the decode server may read by now; None: it computes the prompt."""
        prefill_ms, handoff = await self._handoff(self._first_token_s * PREFILL_SHARE)
        if handoff is None or self._prefill is None:
            return None
        beginning = self._beginning_under(self._server.salt_end)
        return self._doubts.opened(handoff, self._prefill, prefill_ms, beginning)

    async def _alone(self) -> None:
        """The second time whatever others read is nothing to it."""
        try:
            await self._relayed(self._server.salt_end)
        except OthersLateRead as error:
            if self._has_begun:
                raise
            _log.warning(
                "a vLLM decode server computes a prompt again, whose prefix may have been wrong",
                worker_id=self._server.name,
                request_id=self._submit.request_id,
                reason=error.message,
            )
            self._own_end = self._server.drawn_end()
            await self._relayed(self._own_end)

    async def _handoff(self, within_s: float) -> tuple[float, KeptBlocks | None]:
        """What the prefill server took, in ms, and what it lets be read. Of several choices vLLM
        makes as many readers, and the blocks are free again after the first one's word."""
        if self._prefill is None or self._prefill.member is None or self._submit.sampling.n > 1:
            return 0.0, None
        asked = PrefillRequest(self._prefill, self._clock, self._headers)
        handoff = await asked.ask(self._body_for(self._prefill, self._prefill.salt_end), within_s)
        if asked.has_failed:
            self._note_handoff(failed=True)
        return asked.took_ms, handoff

    async def _tried(self, read: OpenRead) -> SplitserveError | None:
        """Why nothing was relayed, where the decode server may do alone what it could not do with
        these blocks. Raises what ends the request."""
        try:
            await self._relayed(read.salt_end, read)
        except (WorkerLost, TransferFailed) as error:
            if self._has_begun:
                raise
            self._doubts.failed(read)  # now: before anything else is asked of it
            _log.warning(
                "a vLLM decode server has not read a prompt's blocks; it computes the prompt",
                worker_id=self._server.name,
                prefill_worker=read.prefill.name,
                request_id=self._submit.request_id,
                reason=error.message,
            )
            return error
        finally:
            self._doubts.left(read)
        return None

    @property
    def _first_token_s(self) -> float:
        """What it has for its first token, as it was submitted."""
        asked, whole_ms = self._submit, self._submit.timeout_ms
        is_told = asked.HasField("first_token_ms")
        return (min(asked.first_token_ms, whole_ms) if is_told else whole_ms) / 1000

    @property
    def _has_begun(self) -> bool:
        """Something of the answer was relayed."""
        return self._relay is not None and self._relay.has_begun

    def _body_for(self, server: VllmServer, salt_end: str) -> dict[str, Any]:
        salt = salt_of(self._submit.cache_root, salt_end)
        if self._submit.sampling.HasField("grammar"):
            check_version("" if server.member is None else server.member.version)
        return completion_body(self._submit, server.model, salt)

    def _note_handoff(self, *, failed: bool) -> None:
        """A decode server that fails alone as well is at fault itself: then nothing is noted."""
        if self._prefill is not None and self._prefill.member is not None:
            self._on_handoff(self._prefill.member.key, failed)

    async def _relayed(self, salt_end: str, read: OpenRead | None = None) -> None:
        """Raises LateRead before anything of a choice was relayed, and WorkerLost."""
        body, numbers = self._body_for(self._server, salt_end), self._server.numbers
        began_s, is_alone = self._clock(), self._server.num_asked == 1
        relay = self._relay = Relay(
            self._submit,
            self._stream,
            believes=lambda: self._believes(salt_end, read, numbers),
            timing=lambda: self._timing(read, self._clock() - began_s, is_alone),
        )
        if read is not None:
            body = decode_body(body, read.parameters)
            relay.note_cached(read.kept.cached_tokens)
        answer = self._server.wire.stream(COMPLETIONS, body, self._headers)
        async with aclosing(answer) as pieces:
            async for events in pieces:
                self._server.num_words += 1
                if self._begun is not None:
                    await self._goes_on(self._begun)
                if await relay.take(events):
                    return
                self._flush()
        raise WorkerLost("closed its answer before the end")

    async def _believes(self, salt_end: str, read: OpenRead | None, numbers: ServerNumbers) -> None:
        """`numbers`: of the server, before it was asked."""
        if read is not None:
            await self._doubts.judge(read)
        if salt_end != self._own_end:
            await self._doubts.settle(salt_end)
            if self._begun is None:
                self._begun = self._doubts.begun(self._beginning_under(salt_end), numbers)

    async def _goes_on(self, begun: BegunAnswer) -> None:
        try:
            await self._doubts.goes_on(begun)
        except OthersLateRead as error:
            _log.warning(
                "an answer of a vLLM decode server ends, since the rest of it may be wrong",
                worker_id=self._server.name,
                request_id=self._submit.request_id,
                reason=error.message,
            )
            raise

    def _beginning_under(self, salt_end: str) -> Beginning:
        submit, numbers = self._submit, self._server.numbers
        return Beginning.of(submit.cache_root, salt_end, submit.token_ids, numbers)

    def _timing(
        self, read: OpenRead | None, took_s: float, is_alone: bool
    ) -> generation_pb2.Timing:
        """vLLM tells no times: they are seen from here. What a server took beside others is no
        measure of it, and is not told."""
        name = self._server.name
        if read is None:
            computing_ms = took_s * 1000 if is_alone else 0.0
            return generation_pb2.Timing(prefill_ms=computing_ms, decode_worker=name)
        return generation_pb2.Timing(
            prefill_ms=read.prefill_ms,
            kv_ms=took_s * 1000,
            kv_transport=TRANSPORT,
            prefill_worker=read.prefill.name,
            decode_worker=name,
        )

    def _end_early(self) -> None:
        """The connection breaks, by which vLLM stops."""
        if self._relay is not None and self._task is not None:
            self._relay.end()
            self._task.cancel()

    def _named(self, error: SplitserveError) -> SplitserveError:
        """A server's own fault says whose."""
        if isinstance(error, WorkerLost) and self._server.name not in error.message:
            return type(error)(f"{self._server.name} {error.message}")
        return error


def _trace_of(submit: worker_pb2.Submit) -> SentHeaders:
    """By which a server with `--otlp-traces-endpoint` has its spans in the request's trace."""
    context = context_from_wire(submit.trace) if submit.HasField("trace") else None
    return NO_HEADERS if context is None else context.headers
