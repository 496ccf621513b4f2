"""Leases, judged by a clock that stands while the judge does."""

from cluster.generation import EngineLoad
from cluster.membership.expiry import TURN_S, AwakeClock, Expiry, Lease
from cluster.membership.memory import MemoryMembership
from cluster.membership.store import nobody_lives
from tests.cluster.membership.test_memory import member

LEASE_S = 3.0


class World:
    """Time passes in `sleep` only, and takes `late_s` longer than was asked for."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.late_s = 0.0
        self.awake = AwakeClock(self.clock)
        self.store = MemoryMembership(LEASE_S, clock=self.awake)
        self.expiry = Expiry(
            self.store, self.awake, nobody_lives, clock=self.clock, sleep=self.sleep
        )

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.late_s

    async def beat(self) -> None:
        assert await self.store.beat(member().key, EngineLoad(), draining=False)

    async def turns(self, seconds: float) -> None:
        for _ in range(round(seconds / TURN_S)):
            await self.expiry.turn()


async def test_silence_while_we_listen_ends_a_lease() -> None:
    world = World()
    await world.store.join(member())
    await world.turns(2.5)
    assert world.store.members()
    await world.turns(1.0)
    assert not world.store.members()


async def test_our_own_stall_is_nobodys_silence_and_beats_are_read_before_any_judgement() -> None:
    world = World()
    await world.store.join(member())
    for _ in range(5):
        await world.turns(1.0)
        world.late_s = 20.0
        await world.expiry.turn()
        world.late_s = 0.0
        await world.beat()  # it had arrived while the loop stood
    await world.turns(2.5)
    assert world.store.members()


async def test_a_worker_that_died_during_a_stall_has_no_more_than_the_rest_of_its_lease() -> None:
    world = World()
    await world.store.join(member())
    await world.turns(2.0)
    world.late_s = 20.0
    await world.expiry.turn()
    world.late_s = 0.0
    await world.turns(1.5)
    assert not world.store.members()


async def test_a_loop_that_is_always_late_still_sees_who_is_gone() -> None:
    world = World()
    world.late_s = 0.3
    await world.store.join(member())
    await world.turns(LEASE_S + 0.5)
    assert not world.store.members()


def test_the_clock_stands_for_as_long_as_it_overslept() -> None:
    world = World()
    lease = Lease(LEASE_S, world.awake)
    heard_s = world.awake()
    world.now_s += 10.0
    world.awake.overslept(9.0)
    assert not lease.has_run_out(heard_s)
    world.now_s += 2.1
    assert lease.has_run_out(heard_s)
