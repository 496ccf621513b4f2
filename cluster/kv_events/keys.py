"""Who may read a worker's KV events: whoever has the secret that it tells its routers.

    worker     EventKeys, new with every process; EventGate asks for them
    its Join   the worker's public key, and the readers' secret: ReaderKeys
    router     put_on(socket), before it connects

By CURVE: nobody else is let in, and nobody reads along.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from cluster.errors import ConfigError

KEY_CHARS = 40
"""Of Z85, which are 32 bytes."""
HANDSHAKE_BYTES = 1024
"""CURVE's own words, beside what others send."""
_HANDSHAKE_MS = 2000
"""For whoever connects to say who it is; it has a descriptor of ours until then."""
_DOMAIN = "kv-events"


@dataclass(frozen=True, slots=True)
class ReaderKeys:
    """What a router has to know."""

    worker: str
    """Public; by it a reader knows the worker."""
    secret: str = field(repr=False)
    """Of all who may read."""

    def put_on(self, socket: Any) -> None:
        """On a socket of any kind, before it connects. Raises ZMQError for keys that are none."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.worker.encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(self.secret.encode()))
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())


@dataclass(frozen=True, slots=True)
class EventKeys:
    """Of one worker process."""

    of_readers: ReaderKeys
    own_secret: bytes = field(repr=False)

    @classmethod
    def new(cls) -> EventKeys:
        """Raises ConfigError where this host's ZMQ could not tell readers from strangers."""
        if not zmq.has("curve"):
            raise ConfigError(
                "this host's ZMQ has no CURVE, without which KV events are told to every stranger; "
                "install pyzmq from its wheels, or with libsodium"
            )
        own_public, own_secret = zmq.curve_keypair()
        _, secret = zmq.curve_keypair()
        return cls(ReaderKeys(own_public.decode(), secret.decode()), own_secret)


class EventGate:
    """Stands before the sockets of one context; closed before the context is."""

    def __init__(self, context: zmq.Context[Any], keys: EventKeys) -> None:
        self._keys = keys
        self._gate = ThreadAuthenticator(context)
        self._gate.start()
        self._gate.configure_curve_callback(_DOMAIN, _OneKey(keys.of_readers))

    def guard(self, socket: Any) -> None:
        """Before it binds."""
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.own_secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN.encode())
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without the gate nobody comes in

    def close(self) -> None:
        """Once."""
        self._gate.stop()


class _OneKey:
    """For ZMQ's gate."""

    def __init__(self, readers: ReaderKeys) -> None:
        self._public = zmq.curve_public(readers.secret.encode())

    def callback(self, domain: str, key: bytes) -> bool:
        """`key` in the letters of Z85."""
        return key == self._public
