"""vLLM servers found as pods, at the API of the tests' cluster: lists, watches, refusals, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster.membership.memory import MemoryMembership
from cluster.process.background import Background, nothing_needed
from cluster.world import World
from router.vllm.pods.api_server import ListAgain, PodNews, PodsListed, PodsUnseen
from router.vllm.pods.discovery import MAX_FAULTS, MAX_SAID
from router.vllm.pods.pod import Pod, PodCondition, PodMetadata, PodStatus
from router.vllm.server_address import VllmAddress, VllmRole
from router.vllm.vllm_fleet import VllmFleet
from tests.router.front_fakes import until
from tests.router.vllm.fake_vllm import FakeVllm
from tests.router.vllm.pods.pod_cluster import PodCluster, Told, pod_cluster, telling
from tests.router.vllm.test_vllm_fleet import MODEL


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[PodCluster]:
    async with pod_cluster(tmp_path) as made:
        yield made


async def test_pods_are_servers_while_they_are_ready_and_stay(cluster: PodCluster) -> None:
    cluster.add("a", "10.0.0.1")
    async with telling(cluster) as told:
        await told.see("10.0.0.1")
        cluster.add("b", "10.0.0.2")
        await told.see("10.0.0.1", "10.0.0.2")
        cluster.set_ready("a", "10.0.0.1", is_ready=False)
        await told.see("10.0.0.2")
        cluster.set_ready("a", "10.0.0.1")
        await told.see("10.0.0.1", "10.0.0.2")
        cluster.delete("b", grace_s=30)
        await told.see("10.0.0.1")
        cluster.delete("a", grace_s=0)
        await told.see()


async def test_others_pods_are_none(cluster: PodCluster) -> None:
    cluster.add("a", "10.0.0.1")
    cluster.add("b", "10.0.0.2")
    cluster.store.edit(
        "pods", "default", "b", lambda pod: pod["metadata"]["labels"].update(app="other")
    )
    async with telling(cluster) as told:
        await told.see("10.0.0.1")
        cluster.store.edit(
            "pods", "default", "a", lambda pod: pod["metadata"]["labels"].update(app="other")
        )
        await told.see()


async def test_what_is_written_on_a_pod_says_what_it_is_for(cluster: PodCluster) -> None:
    cluster.add("p", "10.0.0.1", "prefill", kv_lease_s="12", kv_events_port="5557")
    cluster.add("d", "10.0.0.2", "decode")
    cluster.add("x", "10.0.0.3", "aggregated", kv_events_port="5557", kv_replay_port="5558")
    async with telling(cluster) as told:
        await told.see("10.0.0.1", "10.0.0.2", "10.0.0.3")
        prefill, decode, both = told.addresses or ()
        roles = [address.role for address in (prefill, decode, both)]
        assert roles == [VllmRole.PREFILL, VllmRole.DECODE, VllmRole.BOTH]
        assert (prefill.lease_s, prefill.events_port, prefill.replay_port) == (12.0, 5557, None)
        assert (decode.lease_s, decode.events_port) == (30.0, None)
        assert (both.events_port, both.replay_port) == (5557, 5558)
        assert all(address.is_found for address in (prefill, decode, both))


async def test_pods_that_say_what_cannot_be_are_left_out_and_named_once(
    cluster: PodCluster,
) -> None:
    cluster.add("bad-role", "10.0.0.1", "both-of-them")
    cluster.add("bad-port", "10.0.0.2", kv_events_port="http")
    cluster.add("long-port", "10.0.0.3", kv_replay_port="9" * 5000)
    cluster.add("elsewhere", "169.254.169.254")
    cluster.add("twin", "10.0.0.9")
    cluster.add("twin-2", "10.0.0.9")
    with capture_logs() as lines:
        async with telling(cluster) as told:
            await told.see("10.0.0.9")
            cluster.add("good", "10.0.0.8")
            await told.see("10.0.0.8", "10.0.0.9")
    said = sorted(line["what"] for line in lines)
    assert len(said) == 5 and "twin-2 at 10.0.0.9:8000" in said
    assert any("bad-port" in what and "'http'" in what for what in said)
    assert any("long-port" in what and len(what) < 300 for what in said)
    assert any("bad-role" in what and "prefill, decode, both" in what for what in said)
    assert any("elsewhere" in what and "--vllm-allow" in what for what in said)


async def test_a_pod_that_cannot_be_read_is_left_out_and_the_others_go_on(
    cluster: PodCluster,
) -> None:
    def spoil(pod: dict[str, Any]) -> None:
        pod["metadata"]["annotations"] = {"splitserve/kv-lease-s": 12}

    cluster.add("a", "10.0.0.1")
    cluster.add("spoilt", "10.0.0.2")
    cluster.store.edit("pods", "default", "spoilt", spoil)
    cluster.add("later", "10.0.0.3")
    with capture_logs() as lines:
        async with telling(cluster) as told:
            await told.see("10.0.0.1", "10.0.0.3")
            cluster.store.edit("pods", "default", "later", spoil)
            await told.see("10.0.0.1")
            cluster.add("b", "10.0.0.4")
            await told.see("10.0.0.1", "10.0.0.4")
            cluster.delete("spoilt", grace_s=0)
            cluster.delete("b", grace_s=0)
            await told.see("10.0.0.1")
            assert told.discovery.is_current
    said = [line["what"] for line in lines if line["event"] == "a pod is left out"]
    assert len(said) == 2 and "pod spoilt: " in said[0] and "pod later: " in said[1]


class ScriptedApi:
    """One answer to each watch: news, the first time those of `news` as well, and then how it
    ends."""

    def __init__(self, *ends: Exception | None, news: Iterable[PodNews] = ()) -> None:
        self.ends = list(ends)
        self.news = list(news)
        self.num_lists = 0

    async def listed(self) -> PodsListed:
        self.num_lists += 1
        status = PodStatus("Running", f"10.0.0.{self.num_lists}", [PodCondition("Ready", "True")])
        return PodsListed([Pod(PodMetadata(name="a"), status)], [], "1")

    async def watched(self, version: str) -> AsyncGenerator[PodNews, None]:
        yield PodNews(version)
        while self.news:
            yield self.news.pop(0)
        if not self.ends:
            await asyncio.Event().wait()
        if (end := self.ends.pop(0)) is not None:
            raise end

    async def close(self) -> None:
        return


async def test_of_a_pod_whose_fault_has_new_words_each_time_a_few_are_said_until_it_is_gone(
    cluster: PodCluster,
) -> None:
    """And it leaves others their lines."""
    ever_new = [PodNews("1", "bad", fault=f"fault {number}") for number in range(2 * MAX_SAID)]
    gone = PodNews("1", "bad", fault="another at its end", is_gone=True)
    other = PodNews("1", "other", fault="is its own")
    api = ScriptedApi(news=[*ever_new, other, gone, ever_new[0]])
    told = Told(cluster, api)
    with capture_logs() as lines:
        following = asyncio.create_task(told.follow())
        await until(lambda: not api.news, "all news are told")
        await told.end(following)
    first = [f"pod bad: fault {number}" for number in range(MAX_FAULTS)]
    assert [line["what"] for line in lines] == [*first, "pod other: is its own", first[0]]


async def test_a_watch_that_ends_with_an_error_begins_anew_after_longer_waits_each_time(
    cluster: PodCluster,
) -> None:
    forgotten, broken = ListAgain("too old resource version"), PodsUnseen("answered 500 to a watch")
    api = ScriptedApi(forgotten, broken, forgotten, forgotten, broken)
    told = Told(cluster, api)
    following = asyncio.create_task(told.follow())
    await told.see("10.0.0.4")
    assert api.num_lists == 4 and len(told.waits_s) == 5
    bounds_s = [0.5 * 2**number for number in range(5)]
    assert all(b / 2 <= wait <= b for wait, b in zip(told.waits_s, bounds_s, strict=True))
    await told.end(following)


async def test_while_the_server_is_away_the_last_view_holds_and_that_is_said_once(
    cluster: PodCluster,
) -> None:
    cluster.add("a", "10.0.0.1")
    async with telling(cluster) as told:
        await told.see("10.0.0.1")
        await until(lambda: told.discovery.is_current, "it is current")
        with capture_logs() as lines:
            cluster.way.cut()
            cluster.add("b", "10.0.0.2")
            await told.tries(8)
            assert told.ids == ["vllm-10.0.0.1:8000"] and not told.discovery.is_current
            cluster.way.mend()
            await told.see("10.0.0.1", "10.0.0.2")
        warnings = [line for line in lines if line["log_level"] == "warning"]
        assert len({line["reason"] for line in warnings}) == len(warnings) <= 3
        assert lines[-1]["event"] == "pods are seen again" and told.discovery.is_current


async def test_it_waits_longer_each_time_and_never_as_long_as_others(cluster: PodCluster) -> None:
    cluster.way.cut()
    async with telling(cluster) as told:
        await told.tries(9)
    waits_s = told.waits_s[:9]
    longest_s = [min(30.0, 0.5 * 2**number) for number in range(9)]
    pairs = list(zip(waits_s, longest_s, strict=True))
    assert all(longest / 2 <= wait <= longest for wait, longest in pairs)
    assert len({round(wait / longest, 6) for wait, longest in pairs}) > 5


async def test_what_was_forgotten_meanwhile_is_listed_anew(tmp_path: Path) -> None:
    async with pod_cluster(tmp_path, history_length=10) as cluster:
        cluster.add("a", "10.0.0.1")
        async with telling(cluster) as told:
            await told.see("10.0.0.1")
            cluster.way.cut()
            cluster.delete("a", grace_s=0)
            cluster.add("b", "10.0.0.2")
            cluster.make_noise(30)
            with capture_logs() as lines:
                cluster.way.mend()
                await told.see("10.0.0.2")
                await until(lambda: told.discovery.is_current, "it is current")
            assert not any("too old" in str(line) or "410" in str(line) for line in lines)


async def test_bookmarks_keep_a_quiet_watch_from_being_forgotten(tmp_path: Path) -> None:
    async with pod_cluster(tmp_path, history_length=100) as cluster:
        cluster.add("a", "10.0.0.1")
        async with telling(cluster) as told:
            await told.see("10.0.0.1")
            before = told.discovery.version
            cluster.make_noise(60)
            await until(lambda: told.discovery.version != before, "a bookmark came")
            assert int(told.discovery.version) > int(before) + 40


@pytest.mark.parametrize(("verbs", "lacking"), [(("watch",), "list"), (("list",), "watch")])
async def test_a_verb_that_is_missing_is_named_with_resource_and_namespace(
    cluster: PodCluster, verbs: tuple[str, ...], lacking: str
) -> None:
    cluster.add("a", "10.0.0.1")
    cluster.allow(*verbs)
    with capture_logs() as lines:
        async with telling(cluster) as told:
            await told.tries(2)
            assert not told.discovery.is_current
            assert told.ids == (["vllm-10.0.0.1:8000"] if "list" in verbs else [])
            cluster.allow("list", "watch")
            await until(lambda: told.discovery.is_current, "it is current")
    said = [line["reason"] for line in lines if "reason" in line]
    assert f"may not {lacking} pods in the namespace default" in said[0]


async def test_a_token_that_was_replaced_is_read_anew(cluster: PodCluster) -> None:
    cluster.add("a", "10.0.0.1")
    async with telling(cluster) as told:
        await told.see("10.0.0.1")
        cluster.allow("list", "watch")  # the former account's token is of no use any more
        cluster.way.cut()
        cluster.add("b", "10.0.0.2")
        cluster.way.mend()
        await told.see("10.0.0.1", "10.0.0.2")


async def test_pages_are_put_together(cluster: PodCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.vllm.pods.api_server.PAGE_PODS", 2)
    for number in range(1, 6):
        cluster.add(f"p{number}", f"10.0.0.{number}")
    async with telling(cluster) as told:
        await told.see(*(f"10.0.0.{number}" for number in range(1, 6)))


async def test_a_selector_that_finds_nobody_is_said(cluster: PodCluster) -> None:
    with capture_logs() as lines:
        async with telling(cluster) as told:
            await told.see()
    assert lines[0]["what"] == "app=vllm in default"


async def test_pods_join_the_fleet_and_leave_with_their_last_request(cluster: PodCluster) -> None:
    clock = asyncio.get_running_loop().time
    background = Background(nothing_needed, clock=clock)
    store = MemoryMembership(60.0, clock=clock)
    told = Told(cluster)

    def open_wire(address: VllmAddress) -> FakeVllm:
        return FakeVllm(clock, address.host_port)

    def members() -> dict[str, bool]:
        return {state.member.worker_id: state.draining for state in store.members()}

    world = World(clock=clock)
    fleet = VllmFleet(told.discovery, open_wire, MODEL, world, background, interval_s=0.02)
    fleet.start(store)
    try:
        cluster.add("d", "10.0.0.1", "decode")
        await until(lambda: list(members()) == ["vllm-10.0.0.1:8000"], "the pod joins")
        (state,) = store.members()
        server = fleet.server_of(state.member.key)
        assert server is not None
        server.num_asked += 1
        cluster.delete("d", grace_s=30)
        await until(lambda: members() == {"vllm-10.0.0.1:8000": True}, "it takes nothing new")
        server.num_asked -= 1
        await until(lambda: not members(), "it leaves")
    finally:
        await fleet.close()
        await background.close()
