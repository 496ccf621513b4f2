"""vLLM servers as members: found, looked at, and gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cluster.errors import WorkerSilent
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.kv_shape import KvShape
from cluster.membership.member import Member
from cluster.membership.memory import MemoryMembership
from cluster.process.background import Background, nothing_needed
from cluster.world import World
from router.fleet.unread import UnreadBytes
from router.fleet.worker_link import LinkEvents, WorkerLink
from router.vllm.introduction import FrontedModel
from router.vllm.kept_blocks import KeptBlocks
from router.vllm.prefill_request import PrefillRequest
from router.vllm.server import VllmServer
from router.vllm.server_address import VllmAddress, vllm_addresses
from router.vllm.vllm_fleet import FOLLOW_AGAIN_S, VllmFleet
from router.vllm.wire import VllmAnswer
from tests.router.planes import member_of
from tests.router.vllm.fake_vllm import FakeVllm
from tests.router.vllm.test_link import virtually

MODEL = FrontedModel(
    name="tiny",
    weights_digest="aa",
    tokenizer_digest="bb",
    kv_shape=KvShape(num_layers=2, num_planes=2, num_kv_heads=1, head_dim=8),
    encode=lambda text: [ord(letter) for letter in text],
)
BOTH = vllm_addresses("http://p:1,role=prefill,http://d:1,role=decode")


class Lists:
    """A Discovery whose list a test changes."""

    is_current = True

    def __init__(self, addresses: tuple[VllmAddress, ...]) -> None:
        self._news: asyncio.Queue[tuple[VllmAddress, ...] | Exception] = asyncio.Queue()
        self.tell(addresses)

    def tell(self, addresses: tuple[VllmAddress, ...]) -> None:
        self._news.put_nowait(addresses)

    def fail(self, error: Exception) -> None:
        self._news.put_nowait(error)

    async def servers(self) -> AsyncGenerator[tuple[VllmAddress, ...], None]:
        while True:
            news = await self._news.get()
            if isinstance(news, Exception):
                raise news
            yield news


class Watched:
    """A vLLM fleet that looks every second, and the store that it joins."""

    def __init__(self, fleet: VllmFleet, store: MemoryMembership, lists: Lists) -> None:
        self.fleet, self.store, self.lists = fleet, store, lists
        self.late_reads: list[int] = []
        self.gone: list[str] = []
        self.servers: dict[str, FakeVllm] = {}

    def members(self) -> dict[str, Member]:
        return {state.member.worker_id: state.member for state in self.store.members()}

    def load_of(self, worker_id: str) -> EngineLoad:
        return next(s.load for s in self.store.members() if s.member.worker_id == worker_id)

    def server_of(self, worker_id: str) -> VllmServer:
        server = self.fleet.server_of(self.members()[worker_id].key)
        assert server is not None
        return server

    def link_to(self, worker_id: str) -> WorkerLink:
        link = self.fleet.link(self.members()[worker_id], LinkEvents(), UnreadBytes())
        assert link is not None
        return link


@asynccontextmanager
async def watched(
    addresses: tuple[VllmAddress, ...] = BOTH,
    before: Callable[[FakeVllm], None] = lambda fake: None,
) -> AsyncIterator[Watched]:
    clock = asyncio.get_running_loop().time
    background = Background(nothing_needed, clock=clock)
    store, lists = MemoryMembership(3.0, clock=clock), Lists(addresses)

    def open_wire(address: VllmAddress) -> FakeVllm:
        fake = FakeVllm(clock, address.host_port)
        before(fake)
        seen.servers[address.worker_id] = fake
        return fake

    fleet = VllmFleet(
        lists,
        open_wire,
        MODEL,
        World(clock=clock),
        background,
        interval_s=1.0,
        on_late_reads=lambda num: seen.late_reads.append(num),
        on_gone=lambda worker_id: seen.gone.append(worker_id),
    )
    seen = Watched(fleet, store, lists)
    fleet.start(store)
    await asyncio.sleep(0.5)
    try:
        yield seen
    finally:
        await fleet.close()
        await background.close()
    assert all(fake.is_closed for fake in seen.servers.values())


@virtually
async def test_servers_join_as_what_they_are() -> None:
    async with watched() as seen:
        prefill, decode = (seen.members()[name] for name in ("vllm-p:1", "vllm-d:1"))
        assert (prefill.role, decode.role) == (Role.PREFILL, Role.DECODE)
        assert prefill.pairing.key == decode.pairing.key and decode.version == "vLLM 0.32.0"
        assert not (prefill.pairing.is_ours or decode.pairing.is_ours), "none is dialled as ours"
        assert (decode.max_context_tokens, decode.pairing.block_size_tokens) == (2048, 16)
        assert seen.load_of("vllm-d:1").free_blocks == 50


@virtually
async def test_servers_of_other_versions_and_aggregated_ones_pair_with_none() -> None:
    async with watched((*BOTH, *vllm_addresses("http://a:1"))) as seen:
        decode, both = (seen.members()[name].pairing for name in ("vllm-d:1", "vllm-a:1"))
        assert decode.key != both.key
        assert replace(decode, dtype="vllm-nixl-0.33.0").key != decode.key


@virtually
async def test_looks_are_beats_and_a_server_that_is_gone_is_not_heard() -> None:
    async with watched() as seen:
        await asyncio.sleep(10.0)
        assert await seen.store.expire() == []
        seen.servers["vllm-p:1"].manners.is_there = False
        await asyncio.sleep(5.0)
        assert [member.worker_id for member in await seen.store.expire()] == ["vllm-p:1"]
        seen.servers["vllm-p:1"].manners.is_there = True
        await asyncio.sleep(1.5)
        assert set(seen.members()) == {"vllm-p:1", "vllm-d:1"}


@virtually
async def test_a_link_is_open_while_its_server_is_well() -> None:
    async with watched() as seen:
        link, manners = seen.link_to("vllm-d:1"), seen.servers["vllm-d:1"].manners
        assert not link.is_open
        await asyncio.sleep(1.0)
        assert link.is_open
        manners.is_well = False
        await asyncio.sleep(1.0)
        assert not link.is_open
        manners.is_well = True
        await asyncio.sleep(1.0)
        assert link.is_open
        await link.close("was closed by the test")


@virtually
async def test_two_failed_looks_and_leaving_tell_whoever_waits_that_nobody_answers() -> None:
    async with watched() as seen:
        server, manners = seen.server_of("vllm-p:1"), seen.servers["vllm-p:1"].manners
        manners.is_there = False
        await asyncio.sleep(1.0)
        assert not server.lost.is_set()
        await asyncio.sleep(1.0)
        assert server.lost.is_set()
        manners.is_there = True
        await asyncio.sleep(1.0)
        assert not server.lost.is_set()
        before = server.lost
        manners.started_s += 60
        await asyncio.sleep(1.0)
        assert before.is_set() and not server.lost.is_set()
        seen.lists.tell(BOTH[1:])
        await asyncio.sleep(0.5)
        assert server.lost.is_set()


@virtually
async def test_a_server_that_was_restarted_is_another_process() -> None:
    async with watched() as seen:
        before = seen.members()["vllm-d:1"]
        seen.servers["vllm-d:1"].manners.started_s += 60
        await asyncio.sleep(1.0)
        after = seen.members()["vllm-d:1"]
        assert after.incarnation != before.incarnation
        assert seen.fleet.link(before, LinkEvents(), UnreadBytes()) is None


@virtually
async def test_another_model_does_not_join() -> None:
    def tokenizes_otherwise(fake: FakeVllm) -> None:
        fake.manners.tokenizes = [1, 2, 3]

    async with watched(before=tokenizes_otherwise) as seen:
        await asyncio.sleep(5.0)
        assert seen.members() == {}


@virtually
async def test_vllm_does_not_join_workers_of_our_own() -> None:
    async with watched(()) as seen:
        await seen.store.join(member_of(Role.DECODE, "ours"))
        seen.lists.tell(BOTH)
        await asyncio.sleep(2.0)
        assert set(seen.members()) == {"ours"}


@virtually
async def test_a_server_that_is_listed_no_more_leaves() -> None:
    async with watched() as seen:
        seen.lists.tell(BOTH[:1])
        await asyncio.sleep(0.5)
        assert set(seen.members()) == {"vllm-p:1"} and seen.servers["vllm-d:1"].is_closed
        assert seen.gone == ["vllm-d:1"], "what was said of it is over"


@virtually
async def test_a_server_that_computes_says_so_whoever_has_the_answer() -> None:
    async with watched() as seen:
        num_words: list[None] = []
        member = seen.members()["vllm-d:1"]
        events = LinkEvents(on_work=lambda: num_words.append(None))
        assert seen.fleet.link(member, events, UnreadBytes()) is not None
        manners = seen.servers["vllm-d:1"].manners
        for num_tokens, num_told in (
            (None, 0),
            (40, 0),
            (40, 0),
            (41, 1),
            (41, 1),
            (60, 2),
            (3, 2),
        ):
            manners.num_tokens = num_tokens
            await asyncio.sleep(1.0)
            assert len(num_words) == num_told


@virtually
async def test_a_server_that_is_listed_no_more_ends_its_requests_and_gets_no_new_ones() -> None:
    async with watched() as seen:
        link, server = seen.link_to("vllm-d:1"), seen.server_of("vllm-d:1")
        await asyncio.sleep(1.0)
        server.num_asked += 1
        seen.lists.tell(BOTH[:1])
        await asyncio.sleep(5.0)
        assert not link.is_open and not server.lost.is_set()
        assert [s.member.worker_id for s in seen.store.members() if s.draining] == ["vllm-d:1"]
        seen.lists.tell(BOTH)
        await asyncio.sleep(1.5)
        assert link.is_open and not any(state.draining for state in seen.store.members())
        seen.lists.tell(BOTH[:1])
        await asyncio.sleep(1.5)
        assert not seen.servers["vllm-d:1"].is_closed
        server.num_asked -= 1
        await asyncio.sleep(1.5)
        assert set(seen.members()) == {"vllm-p:1"} and seen.servers["vllm-d:1"].is_closed
        await link.close("was closed by the test")


@virtually
async def test_a_server_that_is_neither_listed_nor_there_waits_for_no_request() -> None:
    async with watched() as seen:
        seen.server_of("vllm-d:1").num_asked += 1
        seen.lists.tell(BOTH[:1])
        await asyncio.sleep(1.0)
        seen.servers["vllm-d:1"].manners.is_there = False
        await asyncio.sleep(4.0)
        assert set(seen.members()) == {"vllm-p:1"} and seen.servers["vllm-d:1"].is_closed


@virtually
async def test_late_reads_are_counted_whoever_made_them() -> None:
    async with watched() as seen:
        await asyncio.sleep(2.0)
        assert seen.late_reads == []
        seen.servers["vllm-p:1"].late_reads = 3
        await asyncio.sleep(2.0)
        assert seen.late_reads == [3]


@virtually
async def test_of_servers_that_come_and_go_nothing_is_kept() -> None:
    async with watched(()) as seen:
        for number in range(20):
            seen.lists.tell(vllm_addresses(f"http://d{number}:1,role=decode"))
            await asyncio.sleep(2.0)
            link = seen.link_to(f"vllm-d{number}:1")
            await link.close("was closed by the test")
        seen.lists.tell(())
        await asyncio.sleep(1.0)
        assert seen.fleet.num_known == 0 and seen.members() == {}


@virtually
async def test_a_discovery_that_fails_is_followed_anew() -> None:
    async with watched() as seen:
        seen.lists.fail(RuntimeError("a bug"))
        seen.lists.tell(BOTH[:1])
        await asyncio.sleep(FOLLOW_AGAIN_S + 1.0)
        assert set(seen.members()) == {"vllm-p:1"}


@virtually
async def test_a_server_that_is_too_busy_for_looks_stays_while_it_sends_answers() -> None:
    async with watched() as seen:
        server = seen.server_of("vllm-d:1")
        seen.servers["vllm-d:1"].manners.is_there = False
        for _ in range(10):
            server.num_words += 1
            await asyncio.sleep(1.0)
        assert await seen.store.expire() == []
        await asyncio.sleep(5.0)
        assert [member.worker_id for member in await seen.store.expire()] == ["vllm-d:1"]


@virtually
@pytest.mark.parametrize("how", ["is_silent", "is_slow"])
async def test_a_server_that_is_silent_for_a_few_looks_keeps_what_it_has_and_gets_nothing_new(
    how: str,
) -> None:
    """On a machine with thirty times the work that it can do, a page of metrics takes seconds."""
    async with watched() as seen:
        server, manners = seen.server_of("vllm-d:1"), seen.servers["vllm-d:1"].manners
        setattr(manners, how, True)
        for _ in range(16):
            await asyncio.sleep(0.5)
            assert await seen.store.expire() == []
        assert not server.lost.is_set()
        setattr(manners, how, False)
        await asyncio.sleep(4.0)
        setattr(manners, how, True)
        await asyncio.sleep(22.0)
        assert server.lost.is_set()
        assert [member.worker_id for member in await seen.store.expire()] == ["vllm-d:1"]


@virtually
async def test_a_prefill_server_that_is_silent_is_asked_nothing_new_within_a_lease() -> None:
    async with watched() as seen:
        server, manners = seen.server_of("vllm-p:1"), seen.servers["vllm-p:1"].manners
        manners.is_silent = True
        await asyncio.sleep(5.0)
        assert [member.worker_id for member in await seen.store.expire()] == ["vllm-p:1"]
        assert not server.lost.is_set()  # what it computes may still come


@asynccontextmanager
async def computing(seen: Watched) -> AsyncIterator[asyncio.Task[KeptBlocks | None]]:
    """A prompt at the prefill server, for ten seconds."""
    seen.servers["vllm-p:1"].manners.prefill_s = 10.0
    request = PrefillRequest(seen.server_of("vllm-p:1"), asyncio.get_running_loop().time)
    task = asyncio.create_task(request.ask({"prompt": [5, 6]}, 60.0))
    yield task
    blocks = await task
    assert blocks is not None and not request.has_failed
    assert len(seen.servers["vllm-p:1"].asked) == 1 and seen.servers["vllm-p:1"].aborted == 0


@virtually
async def test_a_prefill_server_that_answers_looks_late_stays_and_loses_no_prompt() -> None:
    async with watched() as seen, computing(seen):
        seen.servers["vllm-p:1"].manners.look_s = 1.1  # both of them: more than two seconds
        for _ in range(120):
            await asyncio.sleep(0.1)
            assert await seen.store.expire() == []


@virtually
async def test_one_silent_look_takes_no_prompt_from_a_prefill_server() -> None:
    async with watched() as seen, computing(seen) as task:
        before, manners = seen.members()["vllm-p:1"], seen.servers["vllm-p:1"].manners
        manners.is_silent = True
        await asyncio.sleep(3.0)
        manners.is_silent, manners.look_s = False, 0.2
        expired: list[Member] = []
        for _ in range(40):
            await asyncio.sleep(0.1)
            expired += await seen.store.expire()
        assert expired == [before]
        assert seen.members()["vllm-p:1"] == before and not task.done()


@virtually
async def test_a_prompt_of_a_process_that_was_replaced_is_given_up() -> None:
    async with watched() as seen:
        manners = seen.servers["vllm-p:1"].manners
        manners.prefill_s = 10.0
        request = PrefillRequest(seen.server_of("vllm-p:1"), asyncio.get_running_loop().time)
        task = asyncio.create_task(request.ask({"prompt": [5, 6]}, 60.0))
        await asyncio.sleep(0.1)
        manners.started_s += 60
        await asyncio.sleep(1.5)
        assert task.done() and await task is None and request.has_failed


@virtually
async def test_a_prompt_that_met_a_server_too_busy_for_tls_blames_it_not() -> None:
    async with watched() as seen:
        server = seen.server_of("vllm-p:1")

        async def busy(*_args: object, **_named: object) -> VllmAnswer:
            raise WorkerSilent("it takes connections and began no TLS in 5 s")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server.wire, "post", busy)
            request = PrefillRequest(server, asyncio.get_running_loop().time)
            assert await request.ask({"prompt": [5, 6]}, 60.0) is None
        assert not request.has_failed


@virtually
async def test_a_busy_server_that_does_not_say_when_it_began_is_no_other_process() -> None:
    async with watched() as seen:
        manners = seen.servers["vllm-d:1"].manners
        manners.says_when_started = False
        await asyncio.sleep(2.0)
        before = seen.members()["vllm-d:1"]
        manners.is_silent = True
        await asyncio.sleep(2.0)
        manners.is_silent = False
        await asyncio.sleep(4.0)
        assert seen.members()["vllm-d:1"].incarnation == before.incarnation
