"""From a gateway's head and body to a request that may wait: the checks of the HTTP door."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cluster.errors import InvalidRequest, MethodNotAllowed, UnknownPath
from router.api.plan_reading import plan_of
from router.api.reading.plan import BodyReader, Plan
from router.api.reading.schema import ChatRequest, CompletionRequest
from router.api.request_timeout import TIMEOUT_HEADER, asked_timeout_s
from router.api.status_endpoints import listed
from router.dispatch.stream import Newcomer
from router.dispatch.time_limits import TimeLimits
from router.front.caller import Caller
from router.front.doors import DoorContext
from router.front.generation_request import GenerationRequest
from router.front.prepared_generation import PreparedGeneration
from router.picker.http_head import HttpHead
from router.telemetry.request_trace import RequestTrace
from router.tenants.tenant import Tenant

MODELS_PATH = "/v1/models"
_SCHEMAS: Mapping[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
}


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One request, before its body is read."""

    request_id: str
    """Unique in the fleet."""
    head: HttpHead
    tenant: Tenant
    caller: Caller
    """The gateway: whose clients share its turns, and are told apart by their keys alone."""
    arrived_s: float


class Checked(msgspec.Struct, frozen=True):
    """A request that may go on."""

    plan: Plan
    prepared: PreparedGeneration
    schema: type[msgspec.Struct]
    """Of its body."""


class Intake:
    """Of one router; `readers` by path."""

    def __init__(self, door: DoorContext, readers: Mapping[str, BodyReader]) -> None:
        self._door = door
        self._readers = readers

    def told(self, head: HttpHead) -> bytes | None:
        """The answer to a question about the model, which no server is needed for."""
        is_asked = head.method == "GET" and head.path == MODELS_PATH
        return listed(self._door.model) if is_asked else None

    def check(self, head: HttpHead) -> None:
        """Before the body comes. Raises UnknownPath for all that vLLM answers beside generations:
        what its operators may ask is not for a gateway's clients; MethodNotAllowed, and
        InvalidRequest for a body of another kind."""
        path = head.path[:200]
        if head.path not in self._readers:
            raise UnknownPath(f"{path} is not there; clients may ask {', '.join(self._readers)}")
        if head.method != "POST":
            raise MethodNotAllowed(f"{head.method[:20]} {path}: send it as POST")
        kind = (head.get("content-type") or "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise InvalidRequest(f"content-type is {kind[:100]!r}; send it as application/json")
        encoding = (head.get("content-encoding") or "identity").lower()
        if encoding != "identity":
            raise InvalidRequest(f"content-encoding is {encoding[:50]!r}; send it uncompressed")
        if head.is_all:
            raise InvalidRequest("the request has no body; send what is to be answered as JSON")

    def check_room(self, came: Incoming) -> None:
        """Before the body comes. Raises QueueFull and Hopeless, as CompletionPipeline does."""
        newcomer = Newcomer(came.request_id, came.tenant, self._limits(came, None))
        self._door.pipeline.check_room(newcomer)

    async def checked(self, came: Incoming, body: bytes) -> Checked:
        """Raises InvalidRequest and its kin."""
        reader = self._readers[came.head.path]
        limits = self._limits(came, None)
        plan = await plan_of(body, reader, self._door, lambda: limits.to_first_token, came.caller)
        if len(plan.prompts) > 1:
            raise InvalidRequest(
                f"the body has {len(plan.prompts)} prompts; a gateway sends a request to one "
                "server: send one prompt",
                param="prompt",
            )
        prepared = await self._door.pipeline.prepare(
            GenerationRequest(
                request_id=came.request_id,
                tenant=came.tenant,
                caller=came.caller,
                prompt=plan.prompts[0],
                wishes=plan.wishes,
                limits=self._limits(came, plan.timeout_s),
                trace=self._trace(came.head, reader),
            )
        )
        return Checked(plan, prepared, _SCHEMAS[came.head.path])

    def _trace(self, head: HttpHead, reader: BodyReader) -> RequestTrace | None:
        """As the client's headers say."""
        if self._door.tracing is None:
            return None
        parents, states = map(head.all_of, ("traceparent", "tracestate"))
        return self._door.tracing.begin(parents, states, reader.door.operation)

    def _limits(self, came: Incoming, field_s: float | None) -> TimeLimits:
        header = came.head.get(TIMEOUT_HEADER.decode())
        return self._door.times.limits(came.arrived_s, asked_timeout_s(header, field_s))
