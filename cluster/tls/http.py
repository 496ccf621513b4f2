"""An SSLContext for a listener that runs for long: each connection has the certificates of its
time, and a handshake that fails is told, once for each reason."""

from __future__ import annotations

import ssl
from typing import Any

from cluster.logs import get_logger
from cluster.tls.files import server_context, why
from cluster.tls.watched import Certificates, WatchedCertificates

MAX_REASONS = 16
"""That are told: whoever connects chooses them."""
_log = get_logger("tls")


class ListenerContext(ssl.SSLContext):
    """For asyncio's and uvloop's servers, which ask it for a new SSLObject with each connection.
    From the event loop."""

    def __new__(cls, watched: WatchedCertificates) -> ListenerContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, watched: WatchedCertificates) -> None:
        """Raises ConfigError."""
        self._watched = watched
        self._told: set[str] = set()
        self._shown = watched.current()
        self._inner = self._made(self._shown)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See SSLContext."""
        now = self._watched.current()
        if now is not self._shown:
            self._shown, self._inner = now, self._made(now)
        return self._inner.wrap_bio(*args, **kwargs)

    def note(self, fault: ssl.SSLError) -> None:
        """A handshake has failed."""
        reason = why(fault)
        if reason not in self._told and len(self._told) < MAX_REASONS:
            self._told.add(reason)
            _log.warning(
                "a client's TLS handshake has failed; others like it are not told", why=reason
            )

    def _made(self, _now: Certificates) -> ssl.SSLContext:
        context = server_context(self._watched.files)
        context.set_alpn_protocols(["http/1.1"])
        context.sslobject_class = _telling(self)
        return context


def _telling(listener: ListenerContext) -> type[ssl.SSLObject]:
    class Telling(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as fault:
                listener.note(fault)
                raise

    return Telling
