"""Pods as a Kubernetes API server tells them: a list, and a watch of what changes after it.

httpx and the pod's own service account are all that this takes: no client library is in the
router's image.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from cluster.terminal_text import plain
from router.vllm.pods.pod import Pod
from router.vllm.pods.selection import PodSelection

PAGE_PODS = 250
MAX_PODS = 5000
"""Of one list: a selector that finds more is a slip of the hand."""
MAX_LINE_BYTES = 4 * 1024 * 1024
"""An object has 1.5 MiB at most where it is stored."""
MAX_PAGE_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 15.0
"""For a page, and for the first word of a watch."""
CONNECT_S = 5.0
"""For the connection, and as long for TLS: httpx loses a socket whose handshake is cancelled, as
TIMEOUT_S would."""
WATCH_S = 60.0
"""A watch ends by itself then, so that one on which nothing comes is known to be alive."""
SILENT_S = 15.0
"""Over which it is taken for dead."""
MAX_SAID_CHARS = 300


class PodsUnseen(Exception):
    """The server cannot be asked, or refuses; the text says why."""


class ListAgain(PodsUnseen):
    """What a watch was to go on from is forgotten there: 410 Gone."""


class PodsForbidden(PodsUnseen):
    """The service account may not; the text names verb, resource and namespace."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continued: str | None = msgspec.field(default=None, name="continue")


class _PodList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _NameMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct):
    """What is read of an object that is no pod, or none that can be read."""

    metadata: _NameMeta = msgspec.field(default_factory=_NameMeta)


_page = msgspec.json.Decoder(_PodList)
_status = msgspec.json.Decoder(_Status)
_event = msgspec.json.Decoder(_Event)
_pod = msgspec.json.Decoder(Pod)
_named = msgspec.json.Decoder(_Named)


@dataclass(frozen=True, slots=True)
class PodNews:
    """One event of a watch."""

    version: str
    """To go on from."""
    name: str = ""
    """Of the pod that it is about; empty: nothing has changed up to that version."""
    pod: Pod | None = None
    """As it is now, or was last; None: it cannot be read."""
    fault: str = ""
    """Why."""
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class PodsListed:
    """All of them."""

    pods: list[Pod]
    unread: list[PodNews]
    """Those that cannot be read."""
    version: str
    """To watch from."""


class PodsApi:
    """One reader; `close` once. Every call raises PodsUnseen."""

    def __init__(self, selection: PodSelection) -> None:
        self._selection = selection
        self._client: httpx.AsyncClient | None = None
        self._path = f"/api/v1/namespaces/{selection.namespace}/pods"

    async def listed(self) -> PodsListed:
        """Page by page."""
        found: list[PodNews] = []
        continued, version = "", ""
        while True:
            params = {"limit": str(PAGE_PODS)} | ({"continue": continued} if continued else {})
            page = await self._page(params)
            found += (_news_of(item) for item in page.items or ())
            version = version or page.metadata.resource_version
            continued = page.metadata.continued or ""
            if not continued:
                pods = [news.pod for news in found if news.pod is not None]
                return PodsListed(pods, [news for news in found if news.pod is None], version)
            if len(found) >= MAX_PODS:
                raise PodsUnseen(f"more than {MAX_PODS} pods have the labels that --vllm names")

    async def watched(self, version: str) -> AsyncGenerator[PodNews, None]:
        """What changes after that version, until the server ends it, as it was asked to. The first
        news are that it has begun."""
        params = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": f"{WATCH_S:g}",
        }
        answer = await self._sent("watch", params)
        try:
            yield PodNews(version)
            async with aclosing(self._lines(answer)) as lines:
                async for line in lines:
                    yield self._read(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise PodsUnseen(f"the API server sent what is no event: {cause}") from cause
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """Breaks the connection; the next call opens another, with the authority of then."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _page(self, params: dict[str, str]) -> _PodList:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._sent("list", params)
                try:
                    body = await _body_of(answer, MAX_PAGE_BYTES)
                finally:
                    await answer.aclose()
            return _page.decode(body)
        except TimeoutError as cause:
            raise PodsUnseen(f"the API server gave no list in {TIMEOUT_S:g} s") from cause
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise PodsUnseen(f"the API server sent what is no list of pods: {cause}") from cause

    async def _sent(self, verb: str, params: dict[str, str]) -> httpx.Response:
        """An answer whose body is still to be read. Raises PodsUnseen for any but a good one."""
        try:
            token = await asyncio.to_thread(self._selection.cluster.token_file.read_text)
            client = await self._connected()
        except (OSError, ValueError) as cause:
            raise PodsUnseen(f"the service account cannot be read: {cause}") from cause
        headers = {"authorization": f"Bearer {token.strip()}"}
        params = {"labelSelector": self._selection.labels, **params}
        request = client.build_request("GET", self._path, params=params, headers=headers)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await client.send(request, stream=True)
        except (httpx.HTTPError, OSError, TimeoutError) as cause:
            raise _away(cause) from cause
        if answer.status_code != 200:
            try:
                raise self._refused(verb, answer.status_code, await _body_of(answer, 65_536))
            finally:
                await answer.aclose()
        return answer

    async def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = await asyncio.to_thread(self._opened)
        return self._client

    def _opened(self) -> httpx.AsyncClient:
        cluster = self._selection.cluster
        return httpx.AsyncClient(
            base_url=cluster.url,
            headers={"accept": "application/json", "accept-encoding": "identity"},
            timeout=httpx.Timeout(WATCH_S + SILENT_S, connect=CONNECT_S),
            verify=ssl.create_default_context(cafile=str(cluster.ca_file)),
            trust_env=False,
        )

    async def _lines(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        try:
            async for piece in answer.aiter_raw():
                rest += piece
                *whole, last = rest.split(b"\n") if b"\n" in piece else (rest,)
                for line in filter(None, whole):
                    yield bytes(line)
                rest = last
                if len(rest) > MAX_LINE_BYTES:
                    raise PodsUnseen(f"the API server sent more than {MAX_LINE_BYTES} bytes a line")
        except httpx.HTTPError as cause:
            raise _away(cause) from cause

    def _read(self, line: bytes) -> PodNews:
        event = _event.decode(line)
        if event.type == "ERROR":
            raise self._refused("watch", _status.decode(event.object).code, bytes(event.object))
        if event.type == "BOOKMARK":
            return PodNews(_named.decode(event.object).metadata.resource_version)
        return _news_of(event.object, is_gone=event.type == "DELETED")

    def _refused(self, verb: str, code: int, body: bytes) -> PodsUnseen:
        said = _said_in(body)
        if code == 410:
            return ListAgain(said)
        if code == 403:
            where = f"pods in the namespace {self._selection.namespace}"
            return PodsForbidden(
                f"the service account may not {verb} {where}: give its role the verb {verb} on "
                f"pods there ({said})"
            )
        if code == 401:
            token = self._selection.cluster.token_file
            return PodsUnseen(f"the API server does not take the token of {token} ({said})")
        return PodsUnseen(f"the API server answered {code} to a {verb} of pods: {said}")


def _news_of(item: msgspec.Raw, *, is_gone: bool = False) -> PodNews:
    """Raises DecodeError for what has no name, and so is no object."""
    try:
        pod = _pod.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        known = _named.decode(item).metadata
        fault = f"the API server tells of it what cannot be read: {cause}"
        return PodNews(known.resource_version, known.name, fault=fault, is_gone=is_gone)
    known_as = pod.metadata
    return PodNews(known_as.resource_version, known_as.name, pod, is_gone=is_gone)


async def _body_of(answer: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > max_bytes:
                raise PodsUnseen(f"the API server sent more than {max_bytes} bytes")
    except httpx.HTTPError as cause:
        raise _away(cause) from cause
    return bytes(body)


def _away(cause: Exception) -> PodsUnseen:
    return PodsUnseen(f"the API server does not answer: {str(cause) or type(cause).__name__}")


def _said_in(body: bytes) -> str:
    try:
        said: Any = _status.decode(body).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = body.decode(errors="replace")
    return plain(str(said)[:MAX_SAID_CHARS]) or "it says nothing"
