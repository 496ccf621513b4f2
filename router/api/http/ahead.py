"""What clients send ahead of their turn, as bytes: so much for a connection, so much for a door."""

from __future__ import annotations


class RoomAhead:
    """Of all connections of a door."""

    def __init__(self, max_bytes: int) -> None:
        self.num_free_bytes = max_bytes


class BytesAhead:
    """Of one connection; `take` at its end, too."""

    def __init__(self, room: RoomAhead, max_bytes: int) -> None:
        self._room = room
        self._max_bytes = max_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> bool:
        """False where there is no room; then nothing is kept of it."""
        num_bytes = len(data)
        if len(self._data) + num_bytes > self._max_bytes or num_bytes > self._room.num_free_bytes:
            return False
        self._room.num_free_bytes -= num_bytes
        self._data += data
        return True

    def take(self) -> bytes:
        """All of it, which is then gone from here."""
        if not self._data:
            return b""
        data = bytes(self._data)
        self._room.num_free_bytes += len(data)
        self._data = bytearray()
        return data
