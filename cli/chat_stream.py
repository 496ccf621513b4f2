"""A chat completion over the OpenAI HTTP API, streamed. Standard library only: quick to start."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cluster.errors import ConfigError, SplitserveError, WorkerLost, from_code

CONNECT_TIMEOUT_S = 10.0
MAX_LINE_BYTES = 1 << 20


class ServerUnreachable(Exception):
    """Nobody answers at the address."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """What the last chunks of an answer said; empty where the server did not say it."""

    finish_reason: str | None
    usage: dict[str, Any]
    timing: dict[str, Any]


class ChatServer:
    """One server. Every call makes a connection of its own, so leaving early cancels on both sides.

    Raises ServerUnreachable, or the SplitserveError that the server's error stands for.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, answer_timeout_s: float = 600.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url is {url!r}; allowed: http://HOST:PORT", param="url")
        self._parts = parts
        self._url = url.rstrip("/")
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._answer_timeout_s = answer_timeout_s

    def first_model(self) -> str:
        """The name of the first model that is served."""
        with closing(self._request("GET", "/v1/models", None)) as connection:
            models = json.loads(_answer(connection).read()).get("data", [])
        if not models:
            raise WorkerLost(f"{self._url} serves no model")
        return str(models[0]["id"])

    def stream(self, body: dict[str, Any]) -> Iterator[str | AnswerEnd]:
        """Pieces of text as they come, then one AnswerEnd."""
        body = {**body, "stream": True, "stream_options": {"include_usage": True}, "timings": True}
        reason: str | None = None
        usage: dict[str, Any] = {}
        timing: dict[str, Any] = {}
        with closing(self._request("POST", "/v1/chat/completions", body)) as connection:
            for chunk in _events(_answer(connection)):
                usage = chunk.get("usage") or usage
                timing = chunk.get("splitserve") or timing
                for choice in chunk.get("choices", ()):
                    reason = choice.get("finish_reason") or reason
                    if text := choice.get("delta", {}).get("content"):
                        yield text
        yield AnswerEnd(reason, usage, timing)

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> http.client.HTTPConnection:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(self._answer_timeout_s)
            payload = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} if payload else {}
            headers |= self._headers
            connection.request(method, self._parts.path.rstrip("/") + path, payload, headers)
        except OSError as cause:
            connection.close()
            reason = cause.strerror or str(cause)
            raise ServerUnreachable(f"{self._url} does not answer: {reason}") from cause
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        return http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)


def _answer(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    """The response, if it is a good one."""
    try:
        response = connection.getresponse()
        if response.status == 200:
            return response
        raw = response.read(MAX_LINE_BYTES)
    except (OSError, http.client.HTTPException) as cause:
        raise WorkerLost(f"the connection broke before the answer: {cause!r}") from cause
    raise _error_in(raw) or WorkerLost(f"HTTP {response.status}: {raw[:200]!r}")


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON of each `data:` line up to [DONE]."""
    try:
        while line := response.readline(MAX_LINE_BYTES):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            if error := _error_in(data):
                raise error
            yield json.loads(data)
    except (OSError, http.client.HTTPException, ValueError) as cause:
        raise WorkerLost(f"the answer broke off: {cause!r}") from cause
    raise WorkerLost("the answer broke off before its end")


def _error_in(raw: bytes) -> SplitserveError | None:
    """The error of an OpenAI error body, if it is one."""
    try:
        error = json.loads(raw).get("error")
    except (ValueError, AttributeError):
        return None
    if not isinstance(error, dict):
        return None
    code = str(error.get("code"))
    return from_code(code, f"{code}: {error.get('message')}")
