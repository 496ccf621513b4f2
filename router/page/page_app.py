"""The application behind the page's listener.

GET /, /page.css, ...   its files, for everybody
GET /session            how much the asker is shown
POST /session           the join token for a cookie; DELETE: no more
GET /events             snapshots, as server-sent events
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from cluster.errors import (
    Cancelled,
    InvalidRequest,
    MethodNotAllowed,
    SplitserveError,
    UnknownPath,
    WrongToken,
    status_of,
)
from cluster.identity import unique_hex
from cluster.logs import get_logger
from cluster.process.loop_share import LoopShare
from cluster.retry_after import no_jitter
from router.api.http.asgi import Receive, Scope, Send, header_of
from router.api.http.delivery import Delivery
from router.api.http.errors import error_body, error_headers
from router.api.http.exchange import Exchange
from router.front.body_account import BodyAccount
from router.front.limits import DoorLimits
from router.front.refusals import internal_error
from router.page.door import PageDoor
from router.page.files import PageFile, page_files
from router.page.sight import Sight
from router.page.watchers import PageWatcher, Watchers

MAX_TOKEN_BYTES = 4096
MAX_CONNECTIONS = 64
_ALWAYS = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        b"object-src 'none'; require-trusted-types-for 'script'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""With every answer: nothing of another host is loaded, and no other site shows or reads it."""
_NO_STORE = (b"cache-control", b"no-store")
_log = get_logger("router.page")


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /session."""

    token: str


class SessionBody(msgspec.Struct):
    """How much the asker is shown, and whether it has anything to sign in with."""

    sight: Sight
    can_sign_in: bool


def page_limits(request_timeout_s: float) -> DoorLimits:
    """Of the listener."""
    return DoorLimits(
        max_body_bytes=MAX_TOKEN_BYTES,
        request_timeout_s=request_timeout_s,
        max_connections=MAX_CONNECTIONS,
        reserved_connections=0,
        ping_interval_s=0,
        reader_timeout_s=10.0,
    )


class PageApp:
    """An ASGI application. No exception passes it."""

    def __init__(
        self, door: PageDoor, watchers: Watchers, limits: DoorLimits, share: LoopShare
    ) -> None:
        self._door = door
        self._watchers = watchers
        self._limits = limits
        self._share = share
        self._bodies = BodyAccount(MAX_CONNECTIONS * MAX_TOKEN_BYTES)
        self._files = page_files()
        self._endpoints: dict[str, dict[str, Callable[[Exchange], Awaitable[None]]]] = {
            "/session": {"GET": self._tell, "POST": self._sign_in, "DELETE": self._sign_out},
            "/events": {"GET": self._show},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        delivery = Delivery(scope, receive, send, unique_hex())
        exchange = Exchange(scope, delivery.receive, delivery.send, self._limits)
        exchange.headers = [*_ALWAYS, _NO_STORE]
        try:
            await self._answer(exchange, delivery)
        except Cancelled:
            scope["state"]["abort_connection"]()
        except SplitserveError as error:
            await _refuse(exchange, delivery, error)
        except Exception:
            _log.exception("the page could not be served")
            await _refuse(exchange, delivery, internal_error())

    async def _answer(self, exchange: Exchange, delivery: Delivery) -> None:
        """Raises UnknownPath, MethodNotAllowed, and what the endpoints do."""
        path, method = exchange.scope["path"], exchange.scope["method"]
        if (file := self._files.get(path)) is not None and method in ("GET", "HEAD"):
            await _send_file(exchange, delivery, file)
            return
        methods = self._endpoints.get(path)
        if methods is None and file is None:
            raise UnknownPath("there is no such path")
        if methods is None or method not in methods:
            raise MethodNotAllowed("this path does not answer that method")
        self._door.check_site(exchange.scope)
        await methods[method](exchange)

    async def _tell(self, exchange: Exchange) -> None:
        await self._reply_session(exchange, self._door.sight_of(exchange.scope))

    async def _sign_in(self, exchange: Exchange) -> None:
        """Raises WrongToken, RateLimited, and InvalidRequest for a body that is none."""
        with self._bodies.open(exchange.caller) as held:
            body = await exchange.read_json_body(held, self._share)
        try:
            shown = msgspec.json.decode(body, type=SignIn).token
        except msgspec.DecodeError:
            raise InvalidRequest('the body has to be {"token": "..."}') from None
        exchange.headers.append((b"set-cookie", self._door.sign_in(exchange.scope, shown)))
        await self._reply_session(exchange, Sight.NAMES)

    async def _sign_out(self, exchange: Exchange) -> None:
        exchange.headers.append((b"set-cookie", self._door.sign_out(exchange.scope)))
        await self._reply_session(exchange, Sight.NOTHING)

    async def _reply_session(self, exchange: Exchange, sight: Sight) -> None:
        body = SessionBody(sight, self._door.asks_for_token)
        await exchange.reply(msgspec.json.encode(body))

    async def _show(self, exchange: Exchange) -> None:
        """Until the asker leaves, does not read, may see less than before, or the router stops.
        Raises WrongToken for a stranger, NotReady where too many watch."""
        sight = self._door.sight_of(exchange.scope)
        if sight is Sight.NOTHING:
            raise WrongToken("sign in with the join token of the fleet")
        with self._watchers.watching(sight) as watcher:
            await exchange.until_disconnect(self._stream(exchange, watcher))

    async def _stream(self, exchange: Exchange, watcher: PageWatcher) -> None:
        await exchange.start_stream()
        while (frame := await watcher.next()) is not None:
            if self._door.sight_of(exchange.scope) is not watcher.sight:
                break
            await exchange.send_event(frame)
        await exchange.end_stream()


async def _send_file(exchange: Exchange, delivery: Delivery, file: PageFile) -> None:
    """304 where the asker has it; it asks each time, and so never has an old one."""
    is_known = header_of(exchange.scope, b"if-none-match") == file.tag.decode()
    body = b"" if is_known else file.body
    headers = [*_ALWAYS, (b"cache-control", b"no-cache"), (b"etag", file.tag)]
    if not is_known:
        headers += [
            (b"content-type", file.content_type),
            (b"content-length", str(len(body)).encode()),
        ]
    status = 304 if is_known else 200
    await delivery.send({"type": "http.response.start", "status": status, "headers": headers})
    await delivery.send({"type": "http.response.body", "body": body})


async def _refuse(exchange: Exchange, delivery: Delivery, error: SplitserveError) -> None:
    if delivery.started:
        exchange.scope["state"]["abort_connection"]()
        return
    headers = error_headers(error, no_jitter)
    await exchange.reply(error_body(error), status=status_of(error).http, headers=headers)
