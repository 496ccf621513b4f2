"""The gRPC service `splitserve.v1.Inference` over the same pipeline as HTTP."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

from cluster.errors import Cancelled, InternalError, SplitserveError
from cluster.logs import bind_request, get_logger
from cluster.rpc import abort
from protos import inference_pb2
from router.dispatch.time_limits import MAX_TIMEOUT_S, DefaultTimes
from router.front.in_flight import InFlight
from router.front.pipeline import CompletionPipeline
from router.front.served_model import ServedModel
from router.grpc_front.event_messages import responses_of
from router.grpc_front.request_reading import read_request
from router.telemetry.request_ids import RequestIds, request_ids

SERVICE_NAME = "splitserve.v1.Inference"
READER_TIMEOUT_S = 30.0
"""A client that takes nothing for so long is dropped."""
_log = get_logger("router.grpc")


class InferenceService:
    """Register with `add_InferenceServicer_to_server`."""

    def __init__(
        self,
        model: ServedModel,
        pipeline: CompletionPipeline,
        in_flight: InFlight,
        *,
        times: DefaultTimes,
    ) -> None:
        self._model = model
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._times = times

    async def Generate(self, request: inference_pb2.GenerateRequest, context: Any) -> None:
        """Streams one generation; the client's cancellation closes it upstream."""
        ids = request_ids(request.request_id or None)
        with bind_request(ids.internal):
            try:
                with self._in_flight.entered():
                    await self._generate(request, context, ids)
            except SplitserveError as error:
                await abort(context, error)
            except Exception:
                _log.exception("call crashed")
                await abort(context, InternalError("the router failed; see its log"))

    async def ListModels(
        self, _request: inference_pb2.ListModelsRequest, _context: Any
    ) -> inference_pb2.ListModelsResponse:
        """The one model."""
        model = inference_pb2.Model(
            id=self._model.name, max_context_tokens=self._model.max_context_tokens
        )
        return inference_pb2.ListModelsResponse(models=[model])

    async def _generate(
        self, request: inference_pb2.GenerateRequest, context: Any, ids: RequestIds
    ) -> None:
        self._model.check_name(request.model)
        limits = self._times.limits(time.monotonic(), _asked_timeout_s(context))
        wanted = read_request(request, ids.internal, limits=limits)
        prepared = await self._pipeline.prepare(wanted)
        async with aclosing(self._pipeline.stream(prepared)) as events:
            async for event in events:
                for response in responses_of(event, ids.echoed):
                    await _write(context, response)


def _asked_timeout_s(context: Any) -> float | None:
    """What is left of the call's own deadline; None when it has none."""
    remaining_s: float | None = context.time_remaining()
    return None if remaining_s is None else min(remaining_s, MAX_TIMEOUT_S)


async def _write(context: Any, response: inference_pb2.GenerateResponse) -> None:
    """Waits while the client does not read, up to the limit."""
    try:
        async with asyncio.timeout(READER_TIMEOUT_S):
            await context.write(response)
    except TimeoutError:
        raise Cancelled(f"the client did not read for {READER_TIMEOUT_S:g} s") from None
