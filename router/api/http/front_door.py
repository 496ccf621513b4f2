"""The outermost layer of the HTTP application: ids, crowding, keys, an answer for every error."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from cluster.errors import (
    Cancelled,
    InvalidRequest,
    MethodNotAllowed,
    SplitserveError,
    UnknownPath,
    status_of,
)
from cluster.logs import bind_request, get_logger
from router.api.answers.message_error import message_error_body
from router.api.http.asgi import App, Receive, Scope, Send, header_of
from router.api.http.delivery import Delivery
from router.api.http.errors import error_body, error_headers
from router.front.doors import DoorContext
from router.front.refusals import crowded, internal_error
from router.telemetry.request_ids import request_ids

_log = get_logger("router.api")
MAX_PATH_CHARS = 200
"""Of a path in a log line or an answer."""
MESSAGES_PATH = "/v1/messages"
"""Of Anthropic's API: its errors have a shape of their own."""
PROBES = frozenset({"/health", "/ping", "/live"})
"""They need no key wherever they are asked, and tell nobody's name."""
METRICS_PATH = "/metrics"
VERSION_PATH = "/version"
OPERATOR_PATHS = PROBES | {METRICS_PATH, VERSION_PATH}
"""Answered in a crowd as well."""
LOAD_PATH, UNLOAD_PATH = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
"""Of operators too, who show the fleet's token there in place of a key."""


class FrontDoor:
    """Wraps the routes. No exception passes it; after headers are out, it can only hang up."""

    def __init__(self, routes: App, door: DoorContext) -> None:
        self._routes = routes
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        ids = request_ids(header_of(scope, b"x-request-id"), self._door.draw)
        scope["state"]["request_id"] = ids.internal
        scope["app"] = (
            self  # the routes then raise HTTPException instead of answering in plain text
        )
        delivery = Delivery(scope, receive, send, ids.echoed)
        with bind_request(ids.internal):
            try:
                _check_crowding(scope)
                await self._let_in(scope)
                await self._routes(scope, delivery.receive, delivery.send)
            except HTTPException as error:
                await self._answer(scope, delivery, _translated(scope, error))
            except SplitserveError as error:
                await self._answer(scope, delivery, error)
            except Exception:
                _log.exception(
                    "a request failed inside the router; its client gets internal_error",
                    path=scope["path"][:MAX_PATH_CHARS],
                )
                await self._answer(scope, delivery, internal_error())

    async def _let_in(self, scope: Scope) -> None:
        """Operators' pages are for operators, wherever strangers come; clients with a key may know
        the version."""
        path = scope["path"]
        if path in OPERATOR_PATHS:
            self._check_pages(path, _key_in(scope))
            return
        if path in (LOAD_PATH, UNLOAD_PATH):
            return  # the endpoint asks for more than a key
        tenant = self._door.who_asks(_key_in(scope))
        scope["state"]["tenant"] = tenant  # known to the answer, if it is a refusal too
        if tenant.account is not None:
            await tenant.account.enter()

    def _check_pages(self, path: str, shown: str | None) -> None:
        pages = self._door.pages
        if path == METRICS_PATH:
            pages.check(shown)
        elif path == VERSION_PATH and not pages.are_open_to(shown):
            self._door.who_asks(shown)

    async def _answer(self, scope: Scope, delivery: Delivery, error: SplitserveError) -> None:
        row = status_of(error)
        if not isinstance(error, Cancelled):
            path = scope["path"][:MAX_PATH_CHARS]
            _log.info("request refused", path=path, code=row.code, message=error.message)
        if delivery.started:
            scope["state"]["abort_connection"]()
            return
        is_message = scope["path"].startswith(MESSAGES_PATH)
        ids = scope["state"]["request_id"]
        body = message_error_body(error, ids) if is_message else error_body(error)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *error_headers(error, self._door.chance.random),
        ]
        if row.http == 408 or scope["state"].get("crowded"):
            headers.append((b"connection", b"close"))
        start = {"type": "http.response.start", "status": row.http, "headers": headers}
        await delivery.send(start)
        await delivery.send({"type": "http.response.body", "body": body})


def _key_in(scope: Scope) -> str | None:
    """As OpenAI's clients send it, or Anthropic's."""
    stated = header_of(scope, b"authorization")
    if stated is None and (key := header_of(scope, b"x-api-key")) is not None:
        return f"Bearer {key}"
    return stated


def _check_crowding(scope: Scope) -> None:
    if scope["state"].get("crowded") and scope["path"] not in OPERATOR_PATHS:
        raise crowded("connections")


def _translated(scope: Scope, error: HTTPException) -> SplitserveError:
    """The routes' own 404 and 405 in our words."""
    what = f"{scope['method']} {scope['path'][:MAX_PATH_CHARS]}"
    if error.status_code == 405:
        return MethodNotAllowed(f"{what}: this path does not answer that method")
    if error.status_code == 404:
        return UnknownPath(f"{what}: there is no such path")
    return InvalidRequest(f"{what}: the request was refused")
