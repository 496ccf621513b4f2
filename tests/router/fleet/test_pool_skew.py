"""How far one role may be ahead in a rolling update to another pairing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

import pytest

from cluster.identity import Role
from cluster.membership.member import MemberState
from cluster.pairing import Pairing
from router.fleet.member import FleetMember
from router.fleet.pool_skew import PoolSkew
from tests.router.planes import PAIRING, member_of

OLD, NEW = PAIRING, replace(PAIRING, weights_digest="new")
BOTH = (Role.PREFILL, Role.DECODE)


def worker(
    pairing: Pairing, role: Role, name: str, *, pool: str = "", settles: bool = False
) -> FleetMember:
    member = member_of(role, name, pairing=pairing, pool=pool)
    return FleetMember(replace(MemberState.joined(member, 0.0), is_settling=settles))


def crowd(pairing: Pairing, role: Role, number: int, *, pool: str = "") -> list[FleetMember]:
    """That have settled."""
    names = [f"{role}-{pool}{n}-{pairing.digest}" for n in range(number)]
    return [worker(pairing, role, name, pool=pool) for name in names]


def may_settle(newcomer: FleetMember, others: list[FleetMember], max_skew: float = 0.0) -> bool:
    return not PoolSkew([*others, newcomer], max_skew).why_ahead(newcomer)


@dataclass
class Rollout:
    """Two Deployments that roll, each with `surge` pods more than it is to have; with none, one
    less is ready meanwhile."""

    sizes: dict[Role, int]
    surge: int
    max_skew: float
    members: list[FleetMember] = field(default_factory=list)

    def __post_init__(self) -> None:
        for role, size in self.sizes.items():
            self.members += crowd(OLD, role, size)

    def of(self, role: Role, pairing: Pairing) -> list[FleetMember]:
        return [i for i in self.members if i.member.role is role and i.pairing_key == pairing.key]

    def settled(self, role: Role) -> list[FleetMember]:
        return [item for item in self.of(role, NEW) if not item.state.is_settling]

    def share(self, role: Role) -> Fraction:
        return Fraction(len(self.settled(role)), self.sizes[role])

    @property
    def is_done(self) -> bool:
        return all(share == 1 for share in map(self.share, BOTH))

    def may_load(self, role: Role) -> bool:
        """As many pods may be there, and so many of the new template are wanted."""
        num_new, num_all = len(self.of(role, NEW)), sum(i.member.role is role for i in self.members)
        size = self.sizes[role]
        return num_new < size and num_all < size + self.surge

    def load(self, role: Role, name: str) -> None:
        """One more has joined."""
        self.members.append(worker(NEW, role, name, settles=True))

    def settle(self, item: FleetMember) -> bool:
        """False where it is not to."""
        if PoolSkew(self.members, self.max_skew).why_ahead(item):
            return False
        item.state = replace(item.state, is_settling=False)
        return True

    def replace_old(self, role: Role) -> None:
        """Old ones leave while enough are ready."""
        num_ready = sum(i.member.role is role and not i.state.is_settling for i in self.members)
        least = self.sizes[role] - (0 if self.surge else 1)
        for item in self.of(role, OLD)[: max(0, num_ready - least)]:
            self.members.remove(item)


@pytest.mark.parametrize("max_skew", [0.0, 0.25, 0.6])
@pytest.mark.parametrize("surge", [1, 3])
def test_both_pools_come_over_whatever_their_sizes_and_neither_is_ahead_by_more_than_the_limit(
    surge: int, max_skew: float
) -> None:
    for sizes in [(p, d) for p in range(1, 7) for d in range(1, 7)]:
        rollout = Rollout(dict(zip(BOTH, sizes, strict=True)), surge, max_skew)
        limit = max(Fraction(max_skew), sum(Fraction(1, size) for size in sizes) / 2)
        for skew in _course(rollout, Random(surge)):
            assert skew <= limit, sizes


@pytest.mark.parametrize("max_skew", [0.0, 0.25])
def test_pools_that_lose_a_worker_before_its_successor_comes_come_over_as_well(
    max_skew: float,
) -> None:
    for sizes in [(p, d) for p in range(1, 7) for d in range(1, 7)]:
        rollout = Rollout(dict(zip(BOTH, sizes, strict=True)), 0, max_skew)
        for _ in _course(rollout, Random(7)):
            pass


def _course(rollout: Rollout, chance: Random) -> Iterator[Fraction]:
    """To its end, in any order: the skew after each event."""
    for _ in range(100 * sum(rollout.sizes.values())):
        _turn(rollout, chance)
        yield abs(rollout.share(Role.PREFILL) - rollout.share(Role.DECODE))
        if rollout.is_done:
            return
    raise AssertionError(f"it stands still: {rollout.sizes}")


def _turn(rollout: Rollout, chance: Random) -> None:
    for role in BOTH:
        rollout.replace_old(role)
    role = chance.choice(BOTH)
    if rollout.may_load(role) and chance.random() < 0.6:
        rollout.load(role, f"{role}-{chance.getrandbits(40)}")
    settling = [item for item in rollout.of(role, NEW) if item.state.is_settling]
    if settling:
        rollout.settle(chance.choice(settling))


def test_of_two_that_could_go_first_it_is_the_decode_worker_which_answers_alone() -> None:
    old = [each for role in BOTH for each in crowd(OLD, role, 2)]
    prefill = worker(NEW, Role.PREFILL, "p", settles=True)
    assert not may_settle(prefill, old)
    assert may_settle(worker(NEW, Role.DECODE, "d", settles=True), old)
    assert may_settle(prefill, [*old, worker(NEW, Role.DECODE, "d")])


def test_one_prefill_worker_of_many_decode_workers_comes_over_in_the_middle() -> None:
    old = [*crowd(OLD, Role.PREFILL, 1), *crowd(OLD, Role.DECODE, 8)]
    prefill = worker(NEW, Role.PREFILL, "p", settles=True)
    gone = [may_settle(prefill, [*old[: 9 - n], *crowd(NEW, Role.DECODE, n)]) for n in range(8)]
    assert gone == [False, False, False, False, True, True, True, True]


def test_a_pool_that_is_new_or_grows_waits_for_nobody() -> None:
    prefill = worker(NEW, Role.PREFILL, "p", settles=True)
    assert may_settle(prefill, [])
    assert may_settle(prefill, [*crowd(NEW, Role.PREFILL, 3), *crowd(NEW, Role.DECODE, 1)])
    beside = [*crowd(OLD, Role.PREFILL, 4), *crowd(OLD, Role.DECODE, 4)]
    assert may_settle(worker(NEW, Role.PREFILL, "p", pool="other", settles=True), beside)


def test_pools_of_a_pairing_that_stays_are_no_measure_for_those_that_change() -> None:
    third = replace(PAIRING, kv_dtype="int8")
    staying = crowd(third, Role.PREFILL, 6, pool="prefill-b")
    new = [*crowd(NEW, Role.PREFILL, 1), *crowd(NEW, Role.DECODE, 1)]
    changing = [*crowd(OLD, Role.PREFILL, 1), *crowd(OLD, Role.DECODE, 1)]
    last = worker(NEW, Role.DECODE, "last", settles=True)
    assert may_settle(last, [*staying, *new, *changing])


def test_one_pool_that_leaves_its_partners_alone_is_held_and_told_why() -> None:
    old = [*crowd(OLD, Role.PREFILL, 4), *crowd(OLD, Role.DECODE, 4)]
    newcomer = worker(NEW, Role.PREFILL, "p", settles=True)
    told = PoolSkew([*old, newcomer], 0.25).why_ahead(newcomer)
    assert told.startswith("0 of 4 prefill workers have this pairing and 0 of 4 decode workers")
    assert "25% ahead (--max-pool-skew)" in told
    assert may_settle(newcomer, old, max_skew=1.0)


def test_of_several_that_come_at_once_those_settle_that_may_and_the_same_at_every_router() -> None:
    old = [*crowd(OLD, Role.PREFILL, 4), *crowd(OLD, Role.DECODE, 4)]
    new = [worker(NEW, Role.DECODE, f"d{n}", settles=True) for n in range(3)]
    for order in (new, new[::-1]):
        members = [*old, *order]
        skew = PoolSkew(members, 0.5)
        assert [not skew.why_ahead(item) for item in new] == [True, True, False]


def test_who_leaves_counts_no_more() -> None:
    old = crowd(OLD, Role.PREFILL, 2)
    leaving = crowd(NEW, Role.DECODE, 2)
    for item in leaving:
        item.state = replace(item.state, draining=True)
    newcomer = worker(NEW, Role.PREFILL, "p", settles=True)
    assert not may_settle(newcomer, [*old, *leaving, *crowd(OLD, Role.DECODE, 2)])
    assert may_settle(newcomer, [*old, *crowd(NEW, Role.DECODE, 2)])
