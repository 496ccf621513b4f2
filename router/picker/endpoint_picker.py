"""A gateway's endpoint picker: which vLLM server gets a client's request, by the router's policy.

    head: path, key -> body: read, checked, tokenized -> its line -> a server: picked
       '-- refused <------'-- refused <-----------------'-- refused, as at the HTTP door
    picked -> the gateway sends it there -> its answer passes by here, and is counted -> over
                                               '- the client's deadline: ended, there too

A request counts at its server until its answer has passed, or the gateway says no more of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.deadline import end_now
from cluster.errors import Cancelled, DeadlineExceeded, NotReady, SplitserveError, status_of
from cluster.generation import Usage
from cluster.logs import bind_request, get_logger
from protos import ext_proc_pb2 as wire
from router.dispatch.passed_request import PassedRequest
from router.dispatch.passing import Passing
from router.dispatch.shown import Shown
from router.front.caller import caller_of
from router.front.doors import DoorContext
from router.front.refusals import internal_error
from router.front.spending import answer_tokens, reserved, settle
from router.grpc_front.call_places import CallPlaces
from router.picker.gateway_call import GatewayCall
from router.picker.gateway_messages import picked, refused, told
from router.picker.http_head import HttpHead
from router.picker.intake import Checked, Incoming, Intake
from router.picker.passed_body import HEADERS_OF_OPERATORS, passed_body
from router.picker.passing_answer import PassingAnswer
from router.telemetry.request_ids import request_ids
from router.vllm.server import salt_of

_log = get_logger("router.picker")


class EndpointPicker:
    """Of one router. `process` answers one call of Envoy's ExternalProcessor."""

    def __init__(
        self,
        door: DoorContext,
        intake: Intake,
        passing: Passing,
        *,
        vllm_key: str | None,
        max_calls: int,
    ) -> None:
        """`vllm_key`: what the servers ask for, in place of the client's key. `max_calls`: under
        way at once; a connection has half of them."""
        self._door = door
        self._intake = intake
        self._passing = passing
        self._places = CallPlaces(max_calls)
        self._authorization = None if vllm_key is None else f"Bearer {vllm_key}"

    async def process(self, _requests: Any, context: Any) -> None:
        """Ends with the call; what fails is the client's answer, while there is none yet."""
        call = GatewayCall(context, self._door.door_limits)
        arrived_s, ids = self._door.times.clock(), request_ids(None, self._door.draw)
        try:
            head = await call.head()
            ids = request_ids(head.get("x-request-id"), self._door.draw)
            with bind_request(ids.internal):
                caller = caller_of(context.peer())
                with self._places.taken_by(caller):
                    came = Incoming(
                        request_id=ids.internal,
                        head=head,
                        tenant=await self._door.let_in(head.get("authorization")),
                        caller=caller,
                        arrived_s=arrived_s,
                    )
                    if (body := self._intake.told(head)) is not None:
                        await call.say(told(body, ids.echoed))
                    else:
                        self._intake.check(head)
                        await self._answered(call, came)
        except Cancelled:
            return
        except SplitserveError as error:
            _log.info("request refused", code=status_of(error).code, message=error.message)
            await self._refuse(call, error, ids.echoed)
        except Exception:
            _log.exception("a gateway's request failed inside the router")
            await self._refuse(call, internal_error(), ids.echoed)

    async def _refuse(self, call: GatewayCall, error: SplitserveError, request_id: str) -> None:
        """Where an answer has begun the gateway breaks it off, at the client and at the server,
        which knows of no deadline: that is for a client's own alone."""
        if not call.is_picked or isinstance(error, DeadlineExceeded):
            await call.say(refused(error, request_id, self._door.chance.random))

    async def _answered(self, call: GatewayCall, came: Incoming) -> None:
        with self._door.in_flight.admit():
            self._intake.check_room(came)
            with self._door.bodies.open(lambda: came.caller) as held:
                body = await call.body(held)
                checked = await self._intake.checked(came, body)
                reservation = await reserved(checked.prepared)
            outcome = _Outcome(checked)
            try:
                request = checked.prepared.routed
                shown = _shown(checked, call)
                async with self._passing.passed(request, call.among, shown=shown) as passed:
                    await self._pick(call, checked, passed, body)
                    last = await self._follow(call, passed, outcome)
            except SplitserveError as error:
                outcome.error = error
                raise
            finally:
                settle(reservation, checked.prepared, outcome.num_made, outcome.error)
            if outcome.cut is not None:
                raise outcome.cut
            if last is not None:
                await call.pass_on(last)

    async def _pick(
        self, call: GatewayCall, checked: Checked, passed: PassedRequest, body: bytes
    ) -> None:
        """The client's key stays here, and what it says to the server's operators alone."""
        await self._door.share.breathe()
        server = passed.server
        replies = picked(
            server.address.host_port,
            {
                **dict.fromkeys(HEADERS_OF_OPERATORS),
                "authorization": self._authorization,
                "x-request-id": passed.request.request_id,
                **passed.trace_headers,
            },
            passed_body(
                body,
                model=server.model,
                salt=salt_of(passed.root, server.passed_end),
                schema=checked.schema if checked.plan.ignored else None,
                max_tokens=passed.request.sampling.max_tokens,
            ),
            in_pieces=call.in_pieces,
            is_end=call.is_end,
        )
        call.is_picked = True
        for reply in replies:
            await call.say(reply)

    async def _follow(
        self, call: GatewayCall, passed: PassedRequest, outcome: _Outcome
    ) -> wire.ProcessingRequest | None:
        """Until the gateway has no more to say, or the request's time is over: then it counts no
        more. The last part of it is still to be passed on."""
        last, late = None, list[DeadlineExceeded]()
        try:
            async with asyncio.timeout(None) as limit:

                def on_late(why: DeadlineExceeded) -> None:
                    late.append(why)
                    end_now(limit)

                watch = passed.watched(on_late)
                try:
                    last = await self._passed_on(call, passed, outcome)
                finally:
                    watch.stop()
        except TimeoutError:
            outcome.lapse(passed, late[0])
        else:
            outcome.end(passed)
        return last

    async def _passed_on(
        self, call: GatewayCall, passed: PassedRequest, outcome: _Outcome
    ) -> wire.ProcessingRequest | None:
        """All but the last part; None: there was none that said so."""
        while (message := await call.answer_part()) is not None:
            if message.WhichOneof("request") == "response_headers":
                outcome.begin(HttpHead(message.response_headers), passed)
            elif message.WhichOneof("request") == "response_body":
                outcome.take(message.response_body, passed)
            if outcome.is_over:
                break
            await call.pass_on(message)
        return message


def _shown(checked: Checked, call: GatewayCall) -> Shown:
    if not checked.plan.options.stream:
        return Shown.WHOLE
    return Shown.TOKENS if call.shows_pieces else Shown.HEAD


class _Outcome:
    """What becomes of one request that was picked for."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.error: SplitserveError | None = None
        """For its bill: it was refused, here or there."""
        self.cut: DeadlineExceeded | None = None
        """The client's deadline, by which the answer ends."""
        self.num_made = 0
        self.is_over = False
        self._status = 0
        self._watch = PassingAnswer()

    def begin(self, head: HttpHead, passed: PassedRequest) -> None:
        """The head of the answer."""
        self._status = head.status
        self.is_over = head.is_all
        if self._is_good:
            passed.began()
            return
        why = f"answered {self._status}"
        passed.failed(why, is_servers_fault=self._status >= 500)
        self.error = NotReady(f"{passed.server.name} {why}")

    def take(self, piece: wire.HttpBody, passed: PassedRequest) -> None:
        """A part of it."""
        self.is_over = piece.end_of_stream
        if self._is_good:
            is_whole = self.is_over and not self.num_made  # when it came nobody has seen
            self.num_made += (num_events := self._watch.take(piece.body))
            passed.made(0 if is_whole else num_events)

    def end(self, passed: PassedRequest) -> None:
        """No more of it comes."""
        if self._is_good or not self._status:
            usage = self._usage(passed)
            self.num_made = usage.completion_tokens
            passed.ended(usage)

    def lapse(self, passed: PassedRequest, why: DeadlineExceeded) -> None:
        """No more of it is waited for: by the client's deadline it is broken off. By the router's
        own limits it goes on without us, who may see nothing of it, and costs all that was
        reserved."""
        if passed.request.limits.client_is_late:
            self.cut = why
        if self._is_good or not self._status:
            self.num_made = self._usage(passed).completion_tokens
            if self.cut is None:
                self.num_made = max(self.num_made, answer_tokens(self.checked.prepared))
            passed.fell_silent(why, num_tokens=self.num_made)

    def _usage(self, passed: PassedRequest) -> Usage:
        """What none tells is what was seen, and where nothing was seen what such answers usually
        have: nobody gets them for nothing."""
        if (told := self._watch.usage(passed.expected_cached)) is not None:
            return told
        routed = passed.request
        guessed = routed.expected_tokens or routed.sampling.max_tokens
        made = self.num_made or guessed * routed.num_choices
        return Usage(len(routed.token_ids), made, passed.expected_cached)

    @property
    def _is_good(self) -> bool:
        return 200 <= self._status < 300
