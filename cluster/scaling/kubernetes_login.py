"""Who an API server takes us for, kept up to date: tokens of managed clusters end within the hour.

    opened    the kubeconfig's context as it is now, or the account of the pod that we are
    renewed   shortly before its token ends, and for an answer of 401: the same context is read
              again, with what its plugin then gives, and the request is sent once more
    rests     after a reading that brought nothing, from its end on, the longer the more there were

The `kubernetes` package is imported when the first connection is opened: it is an extra.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster.deadline import Clock
from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.scaling.kubeconfig import TOKEN, Credentials, Login, read_login

NOT_KNOWN = 401
EARLY = timedelta(minutes=1)
"""Before its end a token is renewed."""
RETRY_S, MOST_RETRY_S = 10.0, 60.0
"""Rests: a plugin may take a second, and ask its own cloud."""
READ_LIMIT_S = 60.0
"""For a reading in which nobody may be asked anything."""
AFTER_LIMIT_S, MOST_AFTER_LIMIT_S = 60.0, 900.0
"""Rests after one that took longer: each may open another window of a browser."""
_HEADER = "authorization"
_log = get_logger("kubernetes")


class _Rest:
    """In which nothing is read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: float | None = None
        self._length_s = 0.0

    @property
    def is_on(self) -> bool:
        return self._until_s is not None and self._clock() < self._until_s

    def begin(self, first_s: float, most_s: float) -> None:
        """Twice as long each time, up to `most_s`."""
        self._length_s = min(max(first_s, 2 * self._length_s), most_s)
        self._until_s = self._clock() + self._length_s

    def end(self) -> None:
        self._until_s, self._length_s = None, 0.0


class RenewedConnections:
    """In the place of a client's own connections; from one event loop."""

    def __init__(self, login: Login, connections: Any, clock: Clock) -> None:
        """`connections`: the client's own, with that login."""
        self._login = login
        self._shown = login.credentials
        self._connections = [connections]
        self._rest = _Rest(clock)
        self._early_rest = _Rest(clock)
        """Of readings before the end alone: what was known then may be new afterwards."""
        self._num_renewed = 0
        self._lock = asyncio.Lock()

    async def request(self, method: str, url: str, **terms: Any) -> Any:
        """What the server answers; see the package's own."""
        if self._ends_soon():
            await self._renewed(self._num_renewed, is_early=True)
        seen = self._num_renewed
        answer = await self._sent(method, url, terms)
        if answer.status != NOT_KNOWN:
            return answer
        await answer.read()  # its connection is free then
        return await self._sent(method, url, terms) if await self._renewed(seen) else answer

    async def close(self) -> None:
        """Idempotent."""
        for each in self._connections:
            await each.close()

    async def _sent(self, method: str, url: str, terms: dict[str, Any]) -> Any:
        headers = dict(terms.get("headers") or {})
        if token := self._login.configuration.api_key.get(TOKEN):
            headers[_HEADER] = token
        return await self._connections[-1].request(method, url, **terms | {"headers": headers})

    def _ends_soon(self) -> bool:
        ends_at = self._login.ends_at
        return ends_at is not None and datetime.now(UTC) >= ends_at - EARLY

    async def _renewed(self, seen: int, *, is_early: bool = False) -> bool:
        """Whether there is something else to show than what was shown after `seen` renewals."""
        async with self._lock:
            if self._num_renewed != seen:
                return True
            if self._rest.is_on or (is_early and self._early_rest.is_on):
                return False
            if (read := await self._read()) is None:
                return False
            if not self._take(*read):
                (self._early_rest if is_early else self._rest).begin(RETRY_S, MOST_RETRY_S)
                return False
            self._rest.end()
            self._early_rest.end()
            return True

    async def _read(self) -> tuple[Login, Credentials] | None:
        """None where it failed, which is told: of a file half written, or a plugin."""
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                fresh = await read_login(self._login.context, is_alone=True)
            return fresh, fresh.credentials
        except TimeoutError:
            why = f"its plugin took longer than {READ_LIMIT_S:g} s, and was ended"
            self._rest.begin(AFTER_LIMIT_S, MOST_AFTER_LIMIT_S)
        except Exception as cause:
            why = str(cause) or repr(cause)
            self._rest.begin(RETRY_S, MOST_RETRY_S)
        _log.warning("kubeconfig not read again", cause=why)
        return None

    def _take(self, fresh: Login, shown: Credentials) -> bool:
        """Not what is of another server, nor less than before: a plugin that fails gives none."""
        ours, before = self._login.configuration, self._shown
        is_less = any(old and not new for old, new in zip(before, shown, strict=True))
        if shown == before or is_less or fresh.configuration.host != ours.host:
            return False
        if shown.certificate != before.certificate:
            # the others stay until the end: a request may be on its way there
            self._connections.append(type(self._connections[0])(fresh.configuration))
        if shown.token is not None:
            ours.api_key[TOKEN] = shown.token
            ours.refresh_api_key_hook = fresh.configuration.refresh_api_key_hook
        self._login = fresh._replace(configuration=ours)
        self._shown = shown
        self._num_renewed += 1
        return True


async def opened_client(clock: Clock = time.monotonic) -> Any:
    """Of the package, to be closed. Raises ConfigError where no cluster is configured, and
    LoginLost where its plugin gives no login: that one may ask, and is waited for."""
    from kubernetes.aio import client, config

    try:
        login = await read_login(None, is_alone=False)
    except (config.ConfigException, OSError) as cause:
        raise ConfigError(f"no Kubernetes cluster is configured: {cause}") from cause
    opened = client.ApiClient(login.configuration)
    opened.rest_client = RenewedConnections(login, opened.rest_client, clock)
    return opened
