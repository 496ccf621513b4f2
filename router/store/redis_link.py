"""The StoreLink to a real Redis. Nothing else imports redis-py, and that takes a tenth of a second:
this is imported where a store is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from router.store.address import StoreAddress
from router.store.errors import LinkLost
from router.store.link import StoreCommand, StoreRefusal, StoreReply

_OF_ALL = (NoScriptError, OutOfMemoryError, ReadOnlyError)
_UNNAMED = ("MISCONF", "MASTERDOWN", "BUSY ", "NOREPLICAS")
"""Of the same kind; redis-py has no classes for them."""


class RedisLink:
    """A StoreLink."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._connection: Any = None
        """redis-py's Connection, whose methods have no types."""

    async def connect(self) -> None:
        """See StoreLink."""
        self.close()
        self._connection = _new_connection(self._address)
        try:
            await self._connection.connect()
        except (RedisError, OSError) as cause:
            raise LinkLost(str(cause)) from cause

    async def exchange(self, commands: Sequence[StoreCommand]) -> list[StoreReply | StoreRefusal]:
        """See StoreLink."""
        connection = self._connection
        if connection is None:
            raise LinkLost("it is closed")
        try:
            packed = connection.pack_commands(commands)
            await connection.send_packed_command(packed, check_health=False)
            return [await _reply_on(connection) for _ in commands]
        except (RedisError, OSError) as cause:
            raise LinkLost(str(cause)) from cause

    def close(self) -> None:
        """See StoreLink."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_connected:
            connection._writer.transport.abort()
            connection._close()  # else it complains of not having been closed


async def _reply_on(connection: Any) -> StoreReply | StoreRefusal:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except ResponseError as refusal:
        message = str(refusal)
        return StoreRefusal(message, isinstance(refusal, _OF_ALL) or message.startswith(_UNNAMED))


def _new_connection(address: StoreAddress) -> Any:
    """It tries once, and has no time limits: those are its caller's."""
    terms: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
        **address.tls_files,
    }
    kind = SSLConnection if address.is_tls else Connection
    return kind(**terms)
