"""Who an API server takes us for, kept up to date: tokens of managed clusters end within the hour.

    opened    the kubeconfig's context as it is now, or the account of the pod that we are
    renewed   shortly before its token ends, and for an answer of 401: the same context is read
              again, with what its plugin then gives, and the request is sent once more

The `kubernetes` package is imported when the first connection is opened: it is an extra.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cluster.deadline import Clock
from cluster.errors import ConfigError
from cluster.logs import get_logger

NOT_KNOWN = 401
EARLY = timedelta(minutes=1)
"""Before its end a token is renewed."""
RETRY_S = 10.0
"""Between two readings: a plugin may take a second, and ask its own cloud."""
READ_LIMIT_S = 60.0
"""For a plugin; who waits for a login in a browser begins the command anew."""
_HEADER, _TOKEN = "authorization", "BearerToken"
_log = get_logger("kubernetes")


class _Credentials(NamedTuple):
    """As they are shown to the server."""

    token: str | None
    certificate: bytes
    """Of the client, with its key; empty: none."""


class _Login(NamedTuple):
    """As it was read."""

    configuration: Any
    context: str | None
    """Of the kubeconfig; None in a pod."""
    ends_at: datetime | None
    """None: not known."""

    @property
    def credentials(self) -> _Credentials:
        given = self.configuration
        files = [name for name in (given.cert_file, given.key_file) if name]
        certificate = b"".join(Path(name).read_bytes() for name in files)
        return _Credentials(given.api_key.get(_TOKEN), certificate)


class RenewedConnections:
    """In the place of a client's own connections; from one event loop."""

    def __init__(self, login: _Login, connections: Any, clock: Clock) -> None:
        """`connections`: the client's own, with that login."""
        self._login = login
        self._shown = login.credentials
        self._connections = [connections]
        self._clock = clock
        self._read_at_s: float | None = None
        self._num_renewed = 0
        self._lock = asyncio.Lock()

    async def request(self, method: str, url: str, **terms: Any) -> Any:
        """What the server answers; see the package's own."""
        if self._ends_soon():
            await self._renewed(self._num_renewed)
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
        if token := self._login.configuration.api_key.get(_TOKEN):
            headers[_HEADER] = token
        return await self._connections[-1].request(method, url, **terms | {"headers": headers})

    def _ends_soon(self) -> bool:
        ends_at = self._login.ends_at
        return ends_at is not None and datetime.now(UTC) >= ends_at - EARLY and not self._is_early()

    def _is_early(self) -> bool:
        return self._read_at_s is not None and self._clock() < self._read_at_s + RETRY_S

    async def _renewed(self, seen: int) -> bool:
        """Whether there is something else to show than what was shown after `seen` renewals."""
        async with self._lock:
            if self._num_renewed != seen:
                return True
            if self._is_early():
                return False
            self._read_at_s = self._clock()
            try:
                async with asyncio.timeout(READ_LIMIT_S):
                    fresh = await _read(self._login.context)
                shown = fresh.credentials
            except Exception as cause:  # of a file half written, or a plugin
                _log.warning("kubeconfig not read again", cause=str(cause) or repr(cause))
                return False
            return self._take(fresh, shown)

    def _take(self, fresh: _Login, shown: _Credentials) -> bool:
        """Not what is of another server, nor less than before: a plugin that fails gives none."""
        ours, before = self._login.configuration, self._shown
        is_less = any(old and not new for old, new in zip(before, shown, strict=True))
        if shown == before or is_less or fresh.configuration.host != ours.host:
            return False
        if shown.certificate != before.certificate:
            # the others stay until the end: a request may be on its way there
            self._connections.append(type(self._connections[0])(fresh.configuration))
        if shown.token is not None:
            ours.api_key[_TOKEN] = shown.token
            ours.refresh_api_key_hook = fresh.configuration.refresh_api_key_hook
        self._login = fresh._replace(configuration=ours)
        self._shown = shown
        self._num_renewed += 1
        return True


async def opened_client(clock: Clock = time.monotonic) -> Any:
    """Of the package, to be closed. Raises ConfigError where no cluster is configured."""
    from kubernetes.aio import client, config

    try:
        login = await _read(None)
    except (config.ConfigException, OSError) as cause:
        raise ConfigError(f"no Kubernetes cluster is configured: {cause}") from cause
    opened = client.ApiClient(login.configuration)
    opened.rest_client = RenewedConnections(login, opened.rest_client, clock)
    return opened


async def _read(context: str | None) -> _Login:
    """`context`: None for the current one."""
    from kubernetes.aio import client, config

    configuration = client.Configuration()
    places = config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)
    if not any(Path(place).expanduser().exists() for place in places if place):
        config.load_incluster_config(client_configuration=configuration)
        return _Login(configuration, None, None)
    loader = await config.load_kube_config(
        context=context, client_configuration=configuration, persist_config=False
    )
    ends_at = getattr(loader, "exec_plugin_expiry", None)
    return _Login(configuration, loader.current_context["name"], ends_at)
