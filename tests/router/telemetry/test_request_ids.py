"""Ids of requests: ours inside, the client's own outside; drawn from where a simulation says."""

from collections.abc import Callable
from itertools import count

from cluster.identity import new_incarnation
from router.telemetry.request_ids import is_known_as, request_ids


def numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{next(numbers):012x}" + 20 * "0"


def test_the_same_draws_give_the_same_ids() -> None:
    first, second = numbered(), numbered()
    asked = ["mine", None, "mine", "not plain\n"]
    told = [request_ids(name, first) for name in asked]
    assert told == [request_ids(name, second) for name in asked]
    assert len({ids.internal for ids in told}) == len(asked)
    assert new_incarnation(first) == new_incarnation(second)


def test_two_clients_with_one_id_have_two_inside_and_each_is_found_by_it() -> None:
    first, second = request_ids("mine"), request_ids("mine")
    assert first.internal != second.internal
    assert first.echoed == second.echoed == "mine"
    assert is_known_as(first.internal, "mine") and is_known_as(second.internal, "mine")
