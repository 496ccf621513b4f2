"""The HTTP application: which path goes where."""

from __future__ import annotations

from starlette.routing import Route, Router

from cluster.join_token import admitted_tokens
from router.api.adapter_endpoints import AdapterBodies, AdapterEndpoint
from router.api.generation_endpoint import GenerationEndpoint, HttpContext
from router.api.http.direct_paths import DirectPaths
from router.api.http.front_door import (
    LOAD_PATH,
    METRICS_PATH,
    UNLOAD_PATH,
    VERSION_PATH,
    FrontDoor,
)
from router.api.named_endpoint import NamedEndpoint
from router.api.pooling_endpoint import PoolingEndpoint
from router.api.reading.chat_reader import ChatReader
from router.api.reading.completion_reader import CompletionReader
from router.api.reading.detokenize_reader import DetokenizeReader
from router.api.reading.embeddings_reader import EmbeddingsReader
from router.api.reading.messages_reader import CountReader, MessagesReader
from router.api.reading.responses_reader import ResponsesReader
from router.api.reading.score_reader import RerankReader, ScoreReader
from router.api.reading.tokenize_reader import TokenizeReader
from router.api.status_endpoints import StatusEndpoints
from router.api.text_endpoint import TextEndpoint
from router.control.adapter_orders import AdapterOrders
from router.front.doors import DoorContext


def build_app(
    door: DoorContext, status: StatusEndpoints, adapter_orders: AdapterOrders | None = None
) -> FrontDoor:
    """All endpoints behind one front door. `adapter_orders`: None: no adapters are loaded here."""
    context, model, lenient = HttpContext(door), door.model, door.ignores_unknown
    chat = GenerationEndpoint(context, ChatReader(model, ignores_unknown=lenient))
    completion = GenerationEndpoint(context, CompletionReader(model, ignores_unknown=lenient))
    messages = NamedEndpoint(context, MessagesReader(model, ignores_unknown=lenient))
    count = TextEndpoint(context, CountReader(model, ignores_unknown=lenient))
    responses = NamedEndpoint(context, ResponsesReader(model, ignores_unknown=lenient))
    tokenize = TextEndpoint(context, TokenizeReader(model, ignores_unknown=lenient))
    detokenize = TextEndpoint(context, DetokenizeReader(model, ignores_unknown=lenient))
    embeddings = PoolingEndpoint(context, EmbeddingsReader(model, ignores_unknown=lenient))
    score = PoolingEndpoint(context, ScoreReader(model, ignores_unknown=lenient))
    rerank = PoolingEndpoint(context, RerankReader(model, ignores_unknown=lenient))
    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completion, methods=["POST"]),
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/score", score, methods=["POST"]),
        Route("/v1/rerank", rerank, methods=["POST"]),
        Route("/v1/models", status.models, methods=["GET"]),
        Route("/v1/models/{name:path}", status.model, methods=["GET"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/health", status.health, methods=["GET"]),
        Route("/ping", status.health, methods=["GET", "POST"]),
        Route("/live", status.live, methods=["GET"]),
        Route(METRICS_PATH, status.metrics, methods=["GET"]),
        Route(VERSION_PATH, status.version, methods=["GET"]),
    ]
    routes += _adapter_routes(context, adapter_orders)
    direct = {"/v1/chat/completions": chat, "/v1/completions": completion}
    return FrontDoor(DirectPaths(direct, Router(routes, redirect_slashes=False)), door)


def _adapter_routes(context: HttpContext, orders: AdapterOrders | None) -> list[Route]:
    if orders is None:
        return []
    bodies = AdapterBodies(orders)
    endpoints, tokens = {LOAD_PATH: bodies.load, UNLOAD_PATH: bodies.unload}, admitted_tokens()
    return [
        Route(path, AdapterEndpoint(context, tokens, order), methods=["POST"])
        for path, order in endpoints.items()
    ]
