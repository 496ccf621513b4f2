"""Whose turn it is."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from router.fairness.counters import MemoryCounters
from router.fairness.line import MAX_PASSED, Line, Ticket
from router.fairness.shares import Bill, Shares


def ticket(tenant: str = "a", *, level: int = 0, weight: float = 1.0, due_s: float = 1.0) -> Ticket:
    return Ticket(tenant=tenant, level=level, weight=weight, due_s=due_s)


def line_of(*tickets: Ticket, num_levels: int = 3) -> Line:
    line = Line(num_levels)
    for each in tickets:
        line.add(each)
    return line


def serve(line: Line, tokens: int = 100) -> Ticket:
    """The next one, who is computed at once."""
    found = line.first()
    assert found is not None
    line.serve(found)
    bill = Bill(line.shares_of(found.level), found.tenant, found.weight, prompt_tokens=1)
    bill.prompt(computed=tokens, cached=0)
    return found


def test_who_is_due_first_is_served_first_among_one_tenant_s() -> None:
    chance = random.Random(1)
    line = line_of(*(ticket(due_s=chance.random()) for _ in range(50)))
    due = [serve(line).due_s for _ in range(50)]
    assert due == sorted(due) and line.first() is None


def test_requests_that_are_due_together_are_served_as_they_came() -> None:
    tickets = [ticket() for _ in range(20)]
    line = line_of(*tickets)
    assert [serve(line) for _ in range(20)] == tickets


@pytest.mark.parametrize("sizes", [(1, 1, 1), (100, 10, 1000)], ids=["equal", "unequal"])
def test_tenants_have_their_weights_of_tokens_however_large_their_requests_are(
    sizes: tuple[int, int, int],
) -> None:
    line, served = Line(1), Counter[str]()
    weights, chance = {"a": 1.0, "b": 2.0, "c": 5.0}, random.Random(2)
    size_of = dict(zip(weights, sizes, strict=True))
    for tenant, weight in weights.items():
        for _ in range(3):
            line.add(ticket(tenant, weight=weight))
    for _ in range(60_000):
        found = line.first()
        assert found is not None
        tokens = size_of[found.tenant] * chance.randrange(1, 3)
        serve(line, tokens)
        served[found.tenant] += tokens
        line.add(ticket(found.tenant, weight=found.weight))
    total = sum(served.values())
    for tenant, weight in weights.items():
        assert served[tenant] / total == pytest.approx(weight / 8, rel=0.02)


def test_a_tenant_that_was_away_has_no_claim_on_what_it_did_not_use() -> None:
    line = line_of(*(ticket("busy") for _ in range(1000)))
    for _ in range(500):
        serve(line)
    for _ in range(100):
        line.add(ticket("back"))
    order = Counter(serve(line).tenant for _ in range(100))
    assert abs(order["busy"] - order["back"]) <= 2


def test_who_had_an_idle_fleet_for_itself_owes_nothing_for_it() -> None:
    line = Line(1)
    for _ in range(500):
        line.add(ticket("early"))
        serve(line)
    for _ in range(100):
        line.add(ticket("early"))
        line.add(ticket("late"))
    order = Counter(serve(line).tenant for _ in range(100))
    assert abs(order["early"] - order["late"]) <= 2


def test_a_higher_class_goes_first_and_a_lower_one_is_not_passed_over_for_ever() -> None:
    line = line_of(*(ticket("low", level=2) for _ in range(10)))
    order = []
    for _ in range(10 * (MAX_PASSED + 1)):
        while sum(line.num_by_tenant(0).values()) < 2:
            line.add(ticket("high"))
        order.append(serve(line).tenant)
    places = [place for place, tenant in enumerate(order) if tenant == "low"]
    assert places == [MAX_PASSED + (MAX_PASSED + 1) * turn for turn in range(10)]


def test_every_class_that_waits_is_served_however_many_are_above_it() -> None:
    line, served = Line(3), Counter[int]()
    for _ in range(20 * MAX_PASSED):
        for level in range(3):
            while sum(line.num_by_tenant(level).values()) < 2:
                line.add(ticket(str(level), level=level))
        served[serve(line).level] += 1
    assert served[0] > 8 * served[1] and served[1] >= 15 and served[2] >= 15


def test_who_is_turned_away_is_of_the_lowest_class_and_of_who_has_most_waiting() -> None:
    line = line_of(*(ticket("flood", due_s=each) for each in range(10)), ticket("victim", due_s=99))
    last = line.last(other := ticket("other", due_s=99))
    assert (last.tenant, last.due_s) == ("flood", 9)
    line.add(low := ticket("low", level=2))
    assert line.last(other) is low
    assert line.last(later := ticket("new", level=2)) is later
    heavy = line_of(*(ticket("heavy", weight=10.0) for _ in range(9)), ticket("x"), ticket("x"))
    assert heavy.last(other).tenant == "x"
    assert heavy.last(own := ticket("x")) is own
    assert Line(3).last(own) is own


def test_who_waits_makes_no_room_for_a_newcomer_of_its_tenant_that_is_due_sooner() -> None:
    line = line_of(*(ticket("flood", due_s=10.0 + each) for each in range(4)), ticket("calm"))
    sooner = ticket("flood", due_s=1.0)
    assert line.last(sooner) is sooner
    assert line.last(ticket("calm", due_s=1.0)).tenant == "flood"


def test_how_many_come_before_is_told_by_class_share_and_deadline() -> None:
    line = line_of(*(ticket("flood") for _ in range(100)), ticket("high", level=0))
    assert line.num_before(ticket("flood", due_s=2.0)) == 101
    assert line.num_before(ticket("flood", due_s=0.0)) == 1
    assert line.num_before(ticket("victim")) == 2
    assert line.num_before(ticket("victim", weight=0.1)) == 11
    assert line.num_before(ticket("low", level=1)) == 101


def test_a_line_is_what_a_plain_list_would_be_whatever_comes_and_goes() -> None:
    chance, line, model = random.Random(5), Line(2), list[Ticket]()
    for _ in range(5000):
        if not model or chance.random() < 0.5:
            new = ticket(chance.choice("ab"), level=chance.randrange(2), due_s=chance.random())
            line.add(new)
            model.append(new)
        elif chance.random() < 0.5:
            gone = chance.choice(model)
            line.remove(gone)
            line.remove(gone)
            model.remove(gone)
        else:
            found = serve(line)
            assert found in model
            rivals = [t for t in model if (t.tenant, t.level) == (found.tenant, found.level)]
            assert found.due_s == min(each.due_s for each in rivals)
            model.remove(found)
        assert line.num_waiting == len(model)
        for level in range(2):
            waiting = sum(line.num_by_tenant(level).values())
            assert waiting == sum(each.level == level for each in model)


def test_a_cached_prompt_costs_little_and_one_that_was_not_computed_costs_one() -> None:
    counters = MemoryCounters()
    shares = Shares(counters)
    shares.came("a")
    bill = Bill(shares, "a", 2.0, prompt_tokens=300)
    assert counters.of("a") == 150.0
    bill.prompt(computed=1000, cached=0)
    assert counters.of("a") == 500.0
    bill.prompt(computed=100, cached=900)
    assert counters.of("a") == 95.0
    bill.produced(10)
    assert counters.of("a") == 105.0
    bill.prompt(computed=0, cached=0)
    assert counters.of("a") == 10.5


def test_so_many_tenants_are_known_and_no_more() -> None:
    counters = MemoryCounters(max_tenants=10)
    shares = Shares(counters)
    for number in range(1000):
        shares.came(str(number))
        shares.charge(str(number), 5.0, 1.0)
    shares.charge("0", 5.0, 1.0)
    assert len(counters) == 10 and counters.of("999") == 5.0 and counters.of("0") == 0.0
