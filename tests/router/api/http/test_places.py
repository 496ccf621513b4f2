"""Places of connections: no address has all of them."""

from __future__ import annotations

from router.api.http.places import ConnectionPlace, ConnectionPlaces
from router.api.http.protocol import protocol_with
from router.front.caller import Caller
from tests.router.api.http.wire import Wire
from tests.router.front_fakes import small_limits

LIMITS = small_limits(max_connections=16, reserved_connections=8)


def caller(address: str, connection: int) -> Caller:
    return Caller(address, f"{address} {connection}")


def test_one_address_has_three_quarters_of_all_and_of_the_reserve_and_others_find_a_place() -> None:
    places = ConnectionPlaces(LIMITS)
    taken = [places.take(caller("crowd", number)) for number in range(100)]
    assert (taken.count(ConnectionPlace.SERVED), taken.count(ConnectionPlace.RESERVE)) == (12, 6)
    assert places.take(caller("other", 1)) is ConnectionPlace.SERVED


def test_a_place_that_is_left_is_free_again() -> None:
    places = ConnectionPlaces(LIMITS)
    callers = [caller("crowd", number) for number in range(12)]
    assert {places.take(each) for each in callers} == {ConnectionPlace.SERVED}
    places.leave(callers[0], ConnectionPlace.SERVED)
    assert places.take(callers[0]) is ConnectionPlace.SERVED


async def test_a_crowd_of_silent_connections_keeps_nobody_else_out() -> None:
    door = protocol_with(LIMITS)
    crowd = [Wire(door, host="10.0.0.7") for _ in range(40)]
    assert sum(not wire.transport.is_closing() for wire in crowd) == 18
    other = Wire(door, host="10.0.0.8")
    other.protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
    await other.turns()
    assert other.protocol.scope["state"]["crowded"] is False
    for wire in (other, *crowd):
        wire.lose()
    await other.settle()
    assert [taken.num for taken in door.places._taken.values()] == [0, 0]
