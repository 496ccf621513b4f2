"""The HTTP application: which path goes where."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster.errors import InvalidRequest, MethodNotAllowed, SplitserveError, UnknownPath
from router.api.chat_reader import ChatReader
from router.api.completion_reader import CompletionReader
from router.api.front_door import FrontDoor
from router.api.generation_endpoint import FrontContext, GenerationEndpoint
from router.api.status_endpoints import Readiness, StatusEndpoints


def build_app(
    context: FrontContext, readiness: Readiness, registry: CollectorRegistry
) -> FrontDoor:
    """All endpoints behind one front door."""
    status = StatusEndpoints(context.model, readiness, registry)
    chat = GenerationEndpoint(context, ChatReader(context.model))
    completion = GenerationEndpoint(context, CompletionReader(context.model))
    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completion, methods=["POST"]),
        Route("/v1/models", status.models, methods=["GET"]),
        Route("/v1/models/{name:path}", status.model, methods=["GET"]),
        Route("/health", status.health, methods=["GET"]),
        Route("/metrics", status.metrics, methods=["GET"]),
        Route("/version", status.version, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _raise_ours})
    app.router.redirect_slashes = False
    return FrontDoor(app)


async def _raise_ours(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405 in our words; the front door answers them."""
    raise _translated(request, error)


def _translated(request: Request, error: Exception) -> SplitserveError:
    what = f"{request.method} {request.url.path[:200]}"
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return MethodNotAllowed(f"{what}: this path does not answer that method")
    if status == 404:
        return UnknownPath(f"{what}: there is no such path")
    return InvalidRequest(f"{what}: the request was refused")
