"""The sockets on which ranks and their conductor talk: who may speak there, and how much waits.

    conductor   channels = Channels(at); channels.listen(...)   its `keys` go to the ranks' launches
    rank        speak_to(address, keys)

On one host they lie in a folder that is the user's alone. Over TCP they speak CURVE, with keys of
one generation: who has not the ranks' secret key is not heard, and is told nothing; nobody reads
along.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from cluster.errors import ConfigError
from cluster.process.descriptors import as_many_descriptors_as_allowed
from cluster.process.socket_path import socket_path

MAX_WAITING = 1024
"""Messages of one connection, at each of its ends."""
_HANDSHAKE_BYTES = 1024
"""Beside the longest message: what CURVE adds to one, and its own words."""
_HANDSHAKE_MS = 2000
"""For whoever connects to say who it is; it has a descriptor of ours until then."""
_DOMAIN = b"ranks"


class ChannelKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a rank one of its generation: a secret, in the letters of Z85."""

    conductor: bytes
    """Public; by it a rank knows its conductor."""
    public: bytes
    secret: bytes
    """Of all ranks of the generation but the conductor."""

    def __repr__(self) -> str:
        return "ChannelKeys(...)"


class Channels:
    """The conductor's, of one generation. Each socket is of one thread; `close` comes after all."""

    def __init__(self, at: Path | str) -> None:
        """`at`: a folder of this user's alone, or an address of this host that the ranks reach.

        Raises ConfigError where this host's ZMQ could not tell the ranks from others.
        """
        if isinstance(at, str):
            _require_curve()
            as_many_descriptors_as_allowed()  # strangers hold some for _HANDSHAKE_MS each
        self._at = at
        self.keys: ChannelKeys | None = None
        """None in a folder."""
        self._secret = b""
        self._gate: ThreadAuthenticator | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        if isinstance(at, str):
            self._make_keys()

    def listen(self, kind: int, name: str, *, max_message_bytes: int) -> zmq.Socket[bytes]:
        """A bound socket, the caller's to close; whoever sends longer messages is cut off."""
        socket = self._context.socket(kind)
        socket.set_hwm(MAX_WAITING)
        socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes + _HANDSHAKE_BYTES)
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        if self.keys is not None:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
            socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without the gate nobody comes in
        try:
            socket.bind(self._endpoint(name))
        except BaseException:
            socket.close(linger=0)
            raise
        return socket

    def close(self) -> None:
        """Idempotent."""
        if self._gate is not None:
            self._gate.stop()
            self._gate = None
        self._context.destroy()

    def _make_keys(self) -> None:
        conductor, self._secret = zmq.curve_keypair()
        public, secret = zmq.curve_keypair()
        self.keys = ChannelKeys(conductor=conductor, public=public, secret=secret)
        self._gate = ThreadAuthenticator(self._context)
        self._gate.start()
        self._gate.configure_curve_callback(_DOMAIN.decode(), _OneKey(public))

    def _endpoint(self, name: str) -> str:
        if isinstance(self._at, Path):
            return f"ipc://{socket_path(self._at, name)}"
        return f"tcp://{self._at}:0"


def address_of(socket: zmq.Socket[bytes]) -> str:
    """Where a socket of `listen` is reached."""
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def speak_to(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    address: str,
    keys: ChannelKeys | None,
    *,
    name: bytes = b"",
    max_waiting: int = MAX_WAITING,
) -> zmq.Socket[bytes]:
    """A rank's end, the caller's to close. `keys`: of its launch. Raises ConfigError where this
    host's ZMQ has no CURVE."""
    if keys is not None:
        _require_curve()
    socket = context.socket(kind)
    socket.set_hwm(max_waiting)
    if name:
        socket.setsockopt(zmq.IDENTITY, name)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.conductor)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    socket.connect(address)
    return socket


class _OneKey:
    """For ZMQ's gate: who may come in."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        """`key` in the letters of Z85."""
        return key == self._public


def _require_curve() -> None:
    if not zmq.has("curve"):
        raise ConfigError(
            "this host's ZMQ has no CURVE, without which ranks on several hosts could not tell "
            "each other from strangers; install pyzmq from its wheels, or with libsodium"
        )
