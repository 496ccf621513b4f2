"""The gRPC service `splitserve.v1.Inference` over the same pipeline as HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from cluster.errors import InternalError, SplitserveError
from cluster.logs import bind_request, get_logger
from cluster.rpc import abort
from protos import inference_pb2
from router.api.request_ids import request_ids
from router.front.in_flight import InFlight
from router.front.pipeline import CompletionPipeline
from router.front.served_model import ServedModel
from router.grpc_front.event_messages import responses_of
from router.grpc_front.request_reading import read_request

SERVICE_NAME = "splitserve.v1.Inference"
_log = get_logger("router.grpc")


class InferenceService:
    """Register with `add_InferenceServicer_to_server`."""

    def __init__(
        self,
        model: ServedModel,
        pipeline: CompletionPipeline,
        in_flight: InFlight,
        *,
        default_timeout_s: float,
    ) -> None:
        self._model = model
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._default_timeout_s = default_timeout_s

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """Streams one generation; the client's cancellation closes it upstream."""
        ids = request_ids(request.request_id or None)
        failure: SplitserveError | None = None
        with bind_request(ids.internal):
            try:
                async for response in self._responses(request, context, ids.internal, ids.echoed):
                    yield response
            except SplitserveError as error:
                failure = error
            except Exception:
                _log.exception("call crashed")
                failure = InternalError("the router failed; see its log")
        if failure is not None:
            await abort(context, failure)

    async def ListModels(
        self, _request: inference_pb2.ListModelsRequest, _context: Any
    ) -> inference_pb2.ListModelsResponse:
        """The one model."""
        model = inference_pb2.Model(
            id=self._model.name, max_context_tokens=self._model.max_context_tokens
        )
        return inference_pb2.ListModelsResponse(models=[model])

    async def _responses(
        self, request: inference_pb2.GenerateRequest, context: Any, internal_id: str, echoed: str
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        with self._in_flight.entered():
            self._model.check_name(request.model)
            wanted = read_request(request, internal_id, timeout_s=self._timeout_s(context))
            prepared = await self._pipeline.prepare(wanted)
            async with aclosing(self._pipeline.stream(prepared)) as events:
                async for event in events:
                    for response in responses_of(event, echoed):
                        yield response

    def _timeout_s(self, context: Any) -> float:
        """The client's deadline, at most the router's own."""
        remaining: float | None = context.time_remaining()
        if remaining is None:
            return self._default_timeout_s
        return min(remaining, self._default_timeout_s)
