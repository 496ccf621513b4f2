"""Routers that talk over one store: who is there, what they have given, what they expect."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from structlog.testing import capture_logs

from cluster.block_hash import chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.config import RouterOptions
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.membership.hold import HoldKind
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.fleet.event_followers import EventFollowers
from router.fleet.request_share import Seats
from router.pricing.estimates import DEFAULT_HANDOFF_MS
from router.pricing.recent_values import BELIEVED_S
from router.sharing.agreement import LASTING_S
from router.sharing.circle import Circle, CirclePlace
from router.sharing.others import LEASE_S, SILENT_S
from router.sharing.predictions import (
    LIFE_S,
    MAX_KEPT,
    MAX_TOLD_TOKENS,
    MAX_UNTOLD,
    Prediction,
    Predictions,
)
from router.sharing.word import word_of
from tests.manual_clock import ManualClock
from tests.router.planes import PAIRING, prefill_member
from tests.router.sharing.memory_store import MemoryStore

ROOT = b"root"
PREFILL = prefill_member("prefill-1")
SIZE = PAIRING.block_size_tokens


class OneThatWaits:
    num_queued = 1
    num_looks = 0

    def look(self) -> None:
        self.num_looks += 1


class Routers:
    """Planes whose ticks a test takes by hand; nothing runs by itself."""

    def __init__(self, *names: str) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.planes = [self.new(name) for name in names]

    def new(self, name: str) -> FleetPlane:
        world = World(clock=self.clock, sleep=self.clock.sleep, chance=Random(1))
        place = CirclePlace(name, self.store)
        return FleetPlane(RouterOptions(), OwnModel(), world, circle=place)

    async def join(self) -> None:
        for plane in self.planes:
            await plane.store.join(PREFILL)

    async def tick(self, *planes: FleetPlane, times: int = 3) -> None:
        """Of those routers, or all; thrice: names are found, words asked for, and heard."""
        for _ in range(times):
            for plane in planes or self.planes:
                await circle_of(plane)._talk.tick()
            self.clock.advance(0.05)


def circle_of(plane: FleetPlane) -> Circle:
    assert plane.circle is not None
    return plane.circle


def held(plane: FleetPlane, prompt: list[int]) -> int:
    return plane.index.match(ROOT, pack_tokens(prompt), SIZE).of(PREFILL.key)


async def test_a_router_knows_the_others_by_their_names_and_who_leaves_is_gone_at_once() -> None:
    routers = Routers("a", "b", "c")
    first, second, third = routers.planes
    await routers.tick()
    assert circle_of(first).others == ["b", "c"]
    assert [circle_of(plane).num_alive for plane in routers.planes] == [3, 3, 3]
    await circle_of(third).close()
    routers.clock.advance(SILENT_S)
    await routers.tick(first, second)
    assert circle_of(first).others == ["b"]


async def test_what_one_router_has_given_a_worker_is_known_at_the_others_until_its_lease_ends() -> (
    None
):
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    [given], [seen] = first.fleet.members, second.fleet.members
    share = given.assign("r1", num_tokens=300, prefill_tokens=200)
    await routers.tick()
    assert (seen.elsewhere.num_tokens, seen.elsewhere.prefill_tokens) == (300, 200)
    assert given.elsewhere.num_requests == 0
    share.prefilled()
    await routers.tick()
    assert (seen.elsewhere.num_tokens, seen.elsewhere.prefill_tokens) == (300, 0)
    routers.clock.advance(LEASE_S)  # the first router says nothing more
    await routers.tick(second)
    assert seen.elsewhere.num_requests == 0
    assert circle_of(second).num_alive == 1


async def test_a_router_says_what_it_has_promised_and_whether_it_has_a_line() -> None:
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    line = OneThatWaits()
    circle_of(first).tells_of(line)
    [given], [seen] = first.fleet.members, second.fleet.members
    share = given.assign("r1", num_tokens=300, prefill_tokens=200, seats=Seats(4, 150))
    await routers.tick()
    assert (seen.elsewhere.num_seqs, seen.elsewhere.coming_tokens) == (4, 150)
    assert seen.room._seat_part.num_parts == 2 and given.room._seat_part.num_parts == 1
    assert line.num_looks > 0
    share.prefilled()
    line.num_queued = 0
    await routers.tick()
    assert (seen.elsewhere.num_seqs, seen.elsewhere.coming_tokens) == (4, 0)
    assert seen.room._seat_part.num_parts == 1


async def test_a_store_that_is_away_or_empty_takes_nobody_the_others_for_long() -> None:
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    first.fleet.members[0].assign("r1", num_tokens=300, prefill_tokens=200)
    await routers.tick()
    routers.store.is_away = True
    await routers.tick()
    assert circle_of(second).num_alive == 2
    assert second.fleet.members[0].elsewhere.num_requests == 1
    routers.store.is_away = False
    routers.store.wipe()
    await routers.tick(second, first)
    assert circle_of(second).num_alive == 2
    assert second.fleet.members[0].elsewhere.num_requests == 1


async def test_a_prompt_that_one_router_has_sent_is_expected_by_all_until_events_or_its_end() -> (
    None
):
    routers = Routers("a", "b")
    await routers.join()
    for plane in routers.planes:
        plane.index.add_worker(PREFILL.key, SIZE)
    first, second = routers.planes
    await routers.tick()
    prompt = list(range(3 * SIZE))
    first.index.expect([PREFILL.key], ROOT, pack_tokens(prompt))
    await routers.tick()
    assert held(second, prompt) == 3
    routers.clock.advance(LIFE_S)
    await routers.tick()
    assert held(second, prompt) == 0
    assert held(first, prompt) == 3  # its own is settled when the request ends


async def test_what_a_workers_events_say_wins_over_what_was_predicted() -> None:
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    await routers.tick()
    prompt = list(range(2 * SIZE))
    first.index.expect([PREFILL.key], ROOT, pack_tokens(prompt))
    await routers.tick()
    names = chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=SIZE)
    second.index.apply(PREFILL.key, CacheChange(removed=names[1:]))
    assert held(second, prompt) == 1
    second.index.apply(PREFILL.key, CacheChange(cleared=True))
    list(second.index.sweep())
    assert held(second, prompt) == 0


async def test_a_router_that_starts_reads_what_was_predicted_before_it_came() -> None:
    routers = Routers("a")
    await routers.join()
    [first] = routers.planes
    await routers.tick()
    prompt = list(range(2 * SIZE))
    first.index.expect([PREFILL.key], ROOT, pack_tokens(prompt))
    await routers.tick()
    late = routers.new("late")
    await late.store.join(PREFILL)
    await routers.tick(late)
    assert held(late, prompt) == 2


async def test_predictions_of_unknown_workers_and_words_of_other_versions_harm_nobody() -> None:
    routers = Routers("a", "b")
    first, second = routers.planes
    await routers.tick()
    first.index.add_worker(WorkerKey("gone", "i9"), SIZE)
    first.index.expect([WorkerKey("gone", "i9")], ROOT, pack_tokens([1] * SIZE))
    key = routers.store.names.of_fleet("predictions")
    await routers.store.ask(("XADD", key, "MAXLEN", "~", 1024, "*", b"c", b"\xff"))
    await routers.tick()
    assert circle_of(second).num_alive == 2
    assert second.index.num_blocks == 0


WORKERS = [(PREFILL.key.worker_id, PREFILL.key.incarnation)]


@pytest.mark.parametrize(
    "told",
    [
        Prediction(WORKERS, b"r" * 65, pack_tokens([1] * SIZE)),
        Prediction(WORKERS, ROOT, pack_tokens([1] * SIZE) + b"x"),
        Prediction(WORKERS, ROOT, pack_tokens([1] * (MAX_TOLD_TOKENS + SIZE))),
        Prediction(WORKERS * 65, ROOT, pack_tokens([1] * SIZE)),
    ],
    ids=["root", "half a token", "too long", "too many workers"],
)
async def test_predictions_that_no_router_makes_are_passed_over(told: Prediction) -> None:
    routers = Routers("a")
    await routers.join()
    (plane,) = routers.planes
    plane.index.add_worker(PREFILL.key, SIZE)
    await routers.tick()
    key, packed = routers.store.names.of_fleet("predictions"), msgspec.msgpack.encode(told)
    await routers.store.ask(("XADD", key, "MAXLEN", "~", 1024, "*", b"c", packed))
    with capture_logs() as logs:
        await routers.tick()
    assert circle_of(plane).predictions.num_heard == 0 and not logs


@pytest.mark.parametrize("share", [(1, 1, 2**31, 0), (1, 1, 1, 2**63 - 1), (1, -1, 1, 0)])
async def test_a_word_with_numbers_that_no_request_has_is_not_believed(
    share: tuple[int, ...],
) -> None:
    packed = msgspec.msgpack.encode((1, [(*WORKERS[0], {"r": share})], 0, ([], []), True))
    assert word_of(packed) is None


async def test_what_cannot_be_heard_of_one_topic_is_said_once_and_keeps_no_other_from_talking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routers = Routers("a", "b")

    async def fail(self: Predictions, replies: object) -> None:
        raise ValueError("of a form that nobody thought of")

    monkeypatch.setattr(Predictions, "heard", fail)
    with capture_logs() as logs:
        await routers.tick()
    assert [circle_of(plane).num_alive for plane in routers.planes] == [2, 2]
    told = [line for line in logs if line["log_level"] == "error"]
    assert [line["topic"] for line in told] == ["predictions"] * 2


async def test_a_prompt_that_a_worker_is_known_to_have_is_not_told_again() -> None:
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    await routers.tick()
    packed = pack_tokens(list(range(2 * SIZE)))
    first.index.expect([PREFILL.key], ROOT, packed).settle(came_true=True)
    first.index.expect([PREFILL.key], ROOT, packed)
    await routers.tick()
    assert circle_of(second).predictions.num_heard == 1


async def test_predictions_are_bounded_on_their_way_and_here() -> None:
    routers = Routers("a", "b")
    await routers.join()
    first, second = routers.planes
    await routers.tick()
    for number in range(2 * MAX_UNTOLD):
        first.index.expect([PREFILL.key], ROOT, pack_tokens([number] * SIZE))
    await routers.tick()
    assert circle_of(second).predictions.num_heard == MAX_UNTOLD
    for round_ in range(MAX_KEPT // MAX_UNTOLD + 1):
        for number in range(MAX_UNTOLD):
            first.index.expect([PREFILL.key], ROOT, pack_tokens([round_, number] * SIZE))
        await routers.tick()
    assert circle_of(second).predictions.num_open == MAX_KEPT


async def test_a_router_that_believes_something_else_of_a_cache_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them has lost a block that events have told of; both have heard all events."""
    routers = Routers("a", "b")
    await routers.join()
    monkeypatch.setattr(EventFollowers, "position_of", lambda self, worker: 7)
    names = chain_names(pack_tokens([1] * SIZE), parent=ROOT, block_size_tokens=SIZE)
    stored = CacheChange(stored=[CachedBlock(names[0], None, [1] * SIZE)])
    first, second = routers.planes
    for plane in routers.planes:
        plane.index.add_worker(PREFILL.key, SIZE)
        plane.index.apply(PREFILL.key, stored)
    await routers.tick()
    assert len({state.index_digest for state in circle_of(first).states()}) == 1
    second.index.apply(PREFILL.key, CacheChange(removed=names))
    await routers.tick()
    assert circle_of(first).disagreeing == ()
    with capture_logs() as logs:
        for _ in range(20):
            routers.clock.advance(LASTING_S / 20)
            await routers.tick()
    assert circle_of(first).disagreeing == (("b", PREFILL.key),)
    told = {state.name: list(state.doubted) for state in circle_of(first).states()}
    assert told == {"a": [], "b": ["prefill-1"]}
    assert {line["router"] for line in logs if line["log_level"] == "warning"} == {"a", "b"}
    metrics = first.registry
    assert metrics.get_sample_value("splitserve_router_disagreements") == 1.0


async def test_routers_know_together_what_a_handoff_costs() -> None:
    """One measurement of each would be too few for any of them."""
    routers = Routers("a", "b", "c")
    estimates = [circle_of(plane)._view._estimates for plane in routers.planes]
    used = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=0)
    decode = WorkerKey("decode-1", "i1")
    for each, took_ms in zip(estimates, (200.0, 250.0, 300.0), strict=True):
        timing = Timing(prefill_ms=50.0, decode_ms=took_ms)
        each.finished(used, timing, decode=decode, prefill=PREFILL.key)
    assert {each.handoff_ms for each in estimates} == {DEFAULT_HANDOFF_MS}
    await routers.tick()
    assert {each.handoff_ms for each in estimates} == {250.0}
    routers.clock.advance(BELIEVED_S + 1)
    await routers.tick()
    assert {each.handoff_ms for each in estimates} == {DEFAULT_HANDOFF_MS}


async def test_routers_tell_for_how_long_a_hold_has_been_over() -> None:
    """And so no router hears of one anew that it has forgotten."""
    routers = Routers("one", "two")
    one, two = (plane.fleet.holds for plane in routers.planes)
    one.order("gone", HoldKind.DRAIN)
    one.forget("gone")
    routers.clock.advance(600.0)
    await routers.tick()
    assert 600 <= two.over_s("gone") < 601
