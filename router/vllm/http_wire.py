"""The VllmWire over HTTP/1.1, by httpx: connections are kept, and broken by a cancelled request.

connecting: the host's part, by its kernel -> off, where it takes longer than that may
    '-> TLS, where it is https: the server's own loop's part -> busy, where it takes long
         '-> asked -> answered
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from cluster.deadline import end_now
from cluster.errors import ConfigError, WorkerLost, WorkerSilent
from cluster.process.own_lateness import SeenTime, SeenTimeout
from router.vllm.event_lines import EventLines
from router.vllm.server_address import VllmAddress
from router.vllm.wire import NO_HEADERS, SentHeaders, VllmAnswer, check

CONNECT_TIMEOUT_S = 1.5
"""Of TCP; less than a look waits: a host that is off is no server that is busy."""
_LOOK_S = 0.25
"""Of these; what passes between two looks counts for two of them at most."""
HANDSHAKE_TIMEOUT_S = 5.0
"""Of TLS, which a busy server has no time for: of a look the whole look's limit is shorter."""
KEEPALIVE_S = 2.0
"""Less than servers keep a connection that nobody uses: vLLM's do for 5."""
MAX_CONNECTIONS = 4096
"""To one server: as many requests as a router may run, and those that it asks itself."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_IDENTITY = {"accept-encoding": "identity"}
"""Answers are read as they come, and nothing is unpacked."""
_JSON = {"content-type": "application/json"}


class HttpWire:
    """See VllmWire."""

    def __init__(
        self, url: str, who: str, *, api_key: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`who`: the server, as messages call it. `tls`: for https. Raises ConfigError for an https
        address without it."""
        if tls is None and url.startswith("https:"):
            raise ConfigError(f"{url} needs TLS, and none was set up for it", param="vllm")
        self._who = who
        self._client = httpx.AsyncClient(
            base_url=url,
            headers=_IDENTITY | ({"authorization": f"Bearer {api_key}"} if api_key else {}),
            timeout=httpx.Timeout(None, connect=HANDSHAKE_TIMEOUT_S),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S),
            verify=False if tls is None else tls,  # its own default reads all authorities again
            trust_env=False,
        )

    async def get(self, path: str, *, timeout_s: float) -> VllmAnswer:
        """See VllmWire.get."""
        return await self._whole(self._client.build_request("GET", path), timeout_s)

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        *,
        timeout_s: float | None,
        headers: SentHeaders = NO_HEADERS,
    ) -> VllmAnswer:
        """See VllmWire.post."""
        return await self._whole(self._posted(path, body, headers), timeout_s)

    async def stream(
        self, path: str, body: dict[str, Any], headers: SentHeaders = NO_HEADERS
    ) -> AsyncGenerator[list[bytes], None]:
        """See VllmWire.stream."""
        answer = await self._sent(self._posted(path, body, headers))
        try:
            if answer.status_code != 200:
                check(await self._read(answer), self._who)
            events = EventLines()
            async with aclosing(self._pieces(answer)) as pieces:
                async for piece in pieces:
                    if data := events.feed(piece):
                        yield data
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """See VllmWire.close."""
        await self._client.aclose()

    def _posted(self, path: str, body: dict[str, Any], headers: SentHeaders) -> httpx.Request:
        content = msgspec.json.encode(body)
        told = {**_JSON, **headers}
        return self._client.build_request("POST", path, content=content, headers=told)

    async def _whole(self, request: httpx.Request, timeout_s: float | None) -> VllmAnswer:
        try:
            async with (
                nullcontext() if timeout_s is None else SeenTimeout(timeout_s, time.monotonic)
            ):
                answer = await self._sent(request)
                try:
                    return await self._read(answer)
                finally:
                    await answer.aclose()
        except TimeoutError as cause:
            raise WorkerSilent(f"{self._who} gave no whole answer in {timeout_s} s") from cause

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        """Raises WorkerSilent where somebody is there, and does not come to TLS."""
        try:
            async with asyncio.timeout(None) as limit, _Connecting(limit) as connecting:
                request.extensions["trace"] = connecting.hear
                return await self._client.send(request, stream=True)
        except TimeoutError as cause:
            raise WorkerLost(f"{self._who} takes no connection in {CONNECT_TIMEOUT_S} s") from cause
        except httpx.ConnectTimeout as cause:
            raise WorkerSilent(
                f"{self._who} takes connections and began no TLS in {HANDSHAKE_TIMEOUT_S} s"
            ) from cause
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise self._lost("cannot be reached", cause) from cause

    async def _read(self, answer: httpx.Response) -> VllmAnswer:
        body = bytearray()
        async with aclosing(self._pieces(answer)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise WorkerLost(f"{self._who} sent more than {MAX_ANSWER_BYTES} bytes")
        return VllmAnswer(answer.status_code, bytes(body))

    async def _pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        except (httpx.HTTPError, httpx.StreamError) as cause:
            raise self._lost("broke off", cause) from cause

    def _lost(self, what: str, cause: Exception) -> WorkerLost:
        words = str(cause) or type(cause).__name__
        return WorkerLost(f"{self._who} {what}: {words}")


class _Connecting:
    """A connection that one request makes, until that is answered: httpx has one limit for TCP and
    TLS, and leaves a socket open whose request is cancelled before a byte of it is sent. What it
    has closed by itself may be closed again."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        """`limit`: of the request, which has none."""
        self._limit = limit
        self._waited = SeenTime(time.monotonic)
        self._timer: asyncio.TimerHandle | None = None
        self._stream: Any = None

    async def hear(self, event: str, info: dict[str, Any]) -> None:
        """Every step of the request, by httpx's extension "trace"."""
        if event == "connection.connect_tcp.started":
            self._waited = SeenTime(time.monotonic, 2 * _LOOK_S)
            self._look_soon()
        elif event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
            self._stop_timer()
            if not self._limit.expired():
                self._limit.reschedule(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop_timer()
        if kind is not None and self._stream is not None:
            await self._stream.aclose()

    def _look_soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Of our own standing little counts: the kernel may have had the connection long since."""
        if self._waited.look() < CONNECT_TIMEOUT_S:
            self._look_soon()
        else:
            end_now(self._limit)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def wires_with_key_of(key_file: str | None) -> Callable[[VllmAddress], HttpWire]:
    """What opens the way to a server. Raises ConfigError for a file that has no key."""
    api_key = vllm_key_in(key_file)
    tls = ssl.create_default_context()  # 0.3 s: at the start, and for all

    def open_wire(address: VllmAddress) -> HttpWire:
        return HttpWire(address.url, address.worker_id, api_key=api_key, tls=tls)

    return open_wire


def vllm_key_in(key_file: str | None) -> str | None:
    """What the servers ask for; None: nothing. Raises ConfigError for a file that has no key."""
    return None if key_file is None else _key_in(Path(key_file).expanduser())


def _key_in(path: Path) -> str:
    try:
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path} cannot be read: {cause}", param="vllm_key_file") from cause
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(f"{path} holds no API key; write it in one line", param="vllm_key_file")
    return key
