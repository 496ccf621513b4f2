"""An SSLContext for a listener that runs for long: each connection has the certificates of its
time, handshakes under way are counted, and one that fails is told, once for each reason.

    connection -> room -> under way -> done, failed, or cut off: counted no more
               '-> none -> its handshake fails before a byte is read
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from cluster.logs import get_logger
from cluster.tls.files import why
from cluster.tls.watched import Certificates, WatchedCertificates

MAX_REASONS = 16
"""That are told: whoever connects chooses them."""
_log = get_logger("tls")


class ListenerContext(ssl.SSLContext):
    """For asyncio's and uvloop's servers, which ask it for a new SSLObject with each connection.
    From the event loop."""

    def __new__(
        cls, watched: WatchedCertificates, has_room: Callable[[int], bool]
    ) -> ListenerContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, watched: WatchedCertificates, has_room: Callable[[int], bool]) -> None:
        """`has_room` is asked with each connection, for one beside so many handshakes under way."""
        self._watched = watched
        self._has_room = has_room
        self._told: set[str] = set()
        self._under_way: WeakSet[ssl.SSLObject] = WeakSet()
        """uvloop drops at once what it has cut off; asyncio leaves it to the garbage collector."""
        self._shown = watched.current()
        self._set_up(self._shown)

    @property
    def num_handshakes(self) -> int:
        """Under way."""
        return len(self._under_way)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See SSLContext. Raises nothing where there is no room: uvloop's listener would not accept
        that connection and none after it."""
        now = self._watched.current()
        if now is not self._shown:
            self._shown = now
            self._set_up(now)
        connection = now.context.wrap_bio(*args, **kwargs)
        if self._has_room(self.num_handshakes):
            self._under_way.add(connection)
        return connection

    def check_room(self, connection: ssl.SSLObject) -> None:
        """Raises SSLError for one that found no room."""
        if connection not in self._under_way:
            raise ssl.SSLError(
                ssl.SSL_ERROR_SSL, "the port has as many connections and handshakes as it takes"
            )

    def ended(self, connection: ssl.SSLObject, fault: ssl.SSLError | None = None) -> None:
        """Its handshake is done, or has failed."""
        self._under_way.discard(connection)
        if fault is not None:
            self._note(why(fault))

    def _note(self, reason: str) -> None:
        if reason not in self._told and len(self._told) < MAX_REASONS:
            self._told.add(reason)
            _log.warning(
                "a client's TLS handshake has failed; others like it are not told", why=reason
            )

    def _set_up(self, certificates: Certificates) -> None:
        certificates.context.set_alpn_protocols(["http/1.1"])
        certificates.context.sslobject_class = _counted_by(self)


def _counted_by(listener: ListenerContext) -> type[ssl.SSLObject]:
    class Counted(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                listener.check_room(self)
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as fault:
                listener.ended(self, fault)
                raise
            listener.ended(self)

    return Counted
