"""A connection is known for as long as its messages come whole."""

from __future__ import annotations

from router.front.caller import Caller
from router.grpc_front.heard_before import HeardBefore


def connection(port: int) -> Caller:
    return Caller("a", f"a:{port}")


def test_one_whole_message_makes_a_connection_known_for_the_next() -> None:
    heard = HeardBefore(2)
    assert not heard.spend(connection(1))
    heard.note(connection(1))
    assert heard.spend(connection(1))
    assert not heard.spend(connection(1))


def test_who_was_silent_for_longest_is_forgotten_first() -> None:
    heard = HeardBefore(2)
    for port in (1, 2, 1, 3):
        heard.note(connection(port))
    assert [port for port in (1, 2, 3) if heard.spend(connection(port))] == [1, 3]


def test_where_nobody_is_to_be_remembered_nobody_is() -> None:
    heard = HeardBefore(0)
    heard.note(connection(1))
    assert not heard.spend(connection(1))
