"""What strangers may do to the router's gRPC port, in numbers.

Whoever has a place for a client's message keeps it for its time; an address that held places and
sent nothing whole has half of it, while others wait.

Workers and operators call at the same port as clients. Their messages are small and come with the
call, so they have places of their own, in which nobody stays: whatever clients do, and however few
places their large messages leave, a beat is heard. At a port of their own gRPC itself takes nothing
larger than such a message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from router.grpc_front.lost_time import LostTimeLimits
from router.grpc_front.message_gate import GateLimits

WINDOW_BYTES = 64 * 1024
"""Of a message that is not received yet."""
WAIT_PER_TIMEOUT = 6.0
"""As many uploads may go before one that waits, each as slow as may be."""
GIVES_WAY_PER_TIMEOUT = 0.5
"""For the doubted: an upload that takes less comes in from their address all the same."""
DOUBT_S = 60.0
MAX_WAITING = 256

CONTROL_MESSAGE_BYTES = WINDOW_BYTES
"""As much as is there before it is asked for; a Join has a few hundred bytes."""
CONTROL_GIVES_WAY_S = 0.01
CONTROL_TIMEOUT_S = 2.0
"""As long as a worker waits for its answer."""
CONTROL_WAITING_PER_PLACE = 32
"""Each for that time and two looks, 15 ms: who is last in line waits for half a second."""
DIALOGUE_MESSAGE_BYTES = 4096
"""Of reflection's questions, which are names; the answer repeats them."""
MIN_CONTROL_PLACES = 2
_CLIENT_PLACES_PER_CONTROL_PLACE = 4

_NO_COMPRESSION = 1
"""The limit of a message is that of its packed form: 60 kB of gzip would be 60 MB here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPort:
    """The limits of a port."""

    max_message_bytes: int
    """A larger one ends its call with RESOURCE_EXHAUSTED, unread; a compressed one with
    UNIMPLEMENTED."""
    max_receiving: int = 28
    """Messages of clients that are received at once; others wait for their turn."""
    receive_timeout_s: float = 10.0
    """For one message."""
    max_streams: int = 4096
    """Calls of clients that answer in a stream (Generate), over all connections. Of these and of
    the next, an address has three quarters at most, and a connection half."""
    max_watches: int = 256
    """Calls of Health.Watch, which cost nothing and last for ever."""
    max_dialogues: int = 8
    """Calls that ask in a stream, which are reflection's: each may hold a message besides those
    that have places."""
    max_calls_per_connection: int = 128
    max_connections: int = 1024
    """More are closed as they come; where there are several ports, at each of them."""
    idle_s: float = 60.0
    """A connection without a call is closed after so long; its client opens another when needed.
    gRPC counts connections, but not whose they are, and closes none of those that it has."""
    max_ping_strikes: int = 8
    """Pings that come sooner than half a second after the last, before the connection is closed.
    Our own workers ping once a second."""

    def for_fleet(self) -> PublicPort:
        """A port of workers, operators and probes alone, with as much of everything but bytes."""
        return replace(self, max_message_bytes=CONTROL_MESSAGE_BYTES)

    @property
    def for_clients(self) -> GateLimits:
        """Of the messages of clients."""
        return GateLimits(
            max_receiving=self.max_receiving,
            max_waiting=MAX_WAITING,
            max_wait_s=self.receive_timeout_s * WAIT_PER_TIMEOUT,
            timeout_s=self.receive_timeout_s,
            gives_way_after_s=self.receive_timeout_s * GIVES_WAY_PER_TIMEOUT,
        )

    @property
    def lost_time(self) -> LostTimeLimits:
        """What clients may lose."""
        return LostTimeLimits(
            forgiven_s=self.receive_timeout_s * GIVES_WAY_PER_TIMEOUT, doubt_s=DOUBT_S
        )

    @property
    def for_control(self) -> GateLimits:
        """Of those of workers, operators and probes. A stranger may send one as large as a
        client's before it is refused, so places are bytes here, too."""
        num_places = max(MIN_CONTROL_PLACES, self.max_receiving // _CLIENT_PLACES_PER_CONTROL_PLACE)
        return GateLimits(
            max_receiving=num_places,
            max_waiting=num_places * CONTROL_WAITING_PER_PLACE,
            max_wait_s=CONTROL_TIMEOUT_S,
            timeout_s=CONTROL_TIMEOUT_S,
            gives_way_after_s=CONTROL_GIVES_WAY_S,
        )

    @property
    def options(self) -> list[tuple[str, int]]:
        """As gRPC takes them."""
        return [
            ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_concurrent_streams", self.max_calls_per_connection),
            ("grpc.http2.bdp_probe", 0),  # else a window of 4 MiB for what nobody has asked for
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.max_connection_idle_ms", int(self.idle_s * 1000)),
            ("grpc.server_handshake_timeout_ms", int(self.receive_timeout_s * 1000)),
            ("grpc.http2.max_ping_strikes", self.max_ping_strikes),
        ]
