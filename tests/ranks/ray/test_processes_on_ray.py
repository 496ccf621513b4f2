"""Processes of a fleet in the hands of actors: told, stopped, lost and started again elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from cluster.errors import ConfigError, PlaceLost
from cluster.launcher.protocol import NodeFacts, ProcessSpec
from cluster.launcher.ray import launcher
from cluster.launcher.ray.head_watch import watch_head
from cluster.launcher.ray.holdings import PATIENCE_S
from cluster.launcher.ray.hosting import ActorPlace, Host, begin_hosts
from cluster.launcher.ray.launcher import RayLauncher
from cluster.launcher.ray.placing import place_group
from cluster.launcher.ray.remote_process import RemoteProcess
from cluster.launcher.ray.session import RaySession
from cluster.process.own_cores import available_cores
from cluster.process.startup import StartupProgress, StartupReady
from tests.cluster.child_programs import (
    IGNORES_SIGTERM,
    RAISES,
    SERVES_UNTIL_SIGTERM,
    STARTS_ANOTHER,
    program,
)
from tests.ranks.ray.cluster_room import (
    DEADLINE_S,
    ONE,
    RANKS_PER_NODE,
    assert_gone,
    groups_that_stand,
    within,
)

Result = TypeVar("Result")
Warnings = list[tuple[str, str, str]]


class Place:
    """A launcher, and what it has passed on."""

    def __init__(
        self, session: RaySession, log_dir: Path, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.session = session
        self.warnings: Warnings = []
        self.launcher = RayLauncher(
            session,
            uses_gpus=False,
            log_dir=log_dir,
            on_warning=lambda *warned: self.warnings.append(warned),
            patience_s=patience_s,
        )
        self.processes: list[RemoteProcess] = []

    async def launch(self, spec: ProcessSpec) -> RemoteProcess:
        self.processes.append(await soon(self.launcher.launch(spec)))
        return self.processes[-1]

    async def close(self) -> None:
        for process in self.processes:
            process.stop(at_once=True)
            await soon(process.wait())
        self.launcher.close()


@pytest.fixture
async def place(session: RaySession, tmp_path: Path) -> AsyncIterator[Place]:
    opened = Place(session, tmp_path)
    yield opened
    await opened.close()
    assert groups_that_stand(session) == []
    assert_no_actor(session)


def assert_no_actor(session: RaySession) -> None:
    within(lambda: None if session.ray.util.list_named_actors() else True, "actors are gone")


async def soon(work: Awaitable[Result]) -> Result:
    async with asyncio.timeout(DEADLINE_S):
        return await work


def worker(source: str, *, ranks: int = 1) -> ProcessSpec:
    return replace(program(source, name="decode-0"), ranks=ranks)


async def test_what_a_process_says_of_itself_and_prints_arrives(
    place: Place, tmp_path: Path
) -> None:
    source = "print('hello', os.environ['SPLITSERVE_PLACEMENT_GROUP'], flush=True);"
    process = await place.launch(worker(source + SERVES_UNTIL_SIGTERM))
    reports = process.reports()
    assert await soon(anext(reports)) == StartupProgress("loading", 0.5)
    assert isinstance(await soon(anext(reports)), StartupReady)
    process.stop()
    ended = await soon(process.wait())
    assert ended.in_words == "signal SIGTERM"
    assert ended.tail[0].startswith("hello decode-0-")
    assert ended.log == str(tmp_path / "decode-0.log")
    assert "hello" in Path(ended.log).read_text()
    assert [report async for report in reports] == []


async def test_a_process_that_cannot_start_says_why(place: Place) -> None:
    ended = await soon((await place.launch(worker(RAISES))).wait())
    assert ended.status == 1 and "nothing_of_that_name" in ended.tail[-1]
    missing = ProcessSpec(name="router", argv=("/no/such/program",))
    with pytest.raises(ConfigError, match="/no/such/program"):
        await place.launch(missing)


async def test_at_once_ends_a_process_and_all_that_it_started(place: Place) -> None:
    process = await place.launch(worker(STARTS_ANOTHER))
    ready = await soon(anext(process.reports()))
    assert isinstance(ready, StartupReady)
    other = psutil.Process(int(ready.facts["other"]))
    process.stop(at_once=True)
    assert (await soon(process.wait())).status == -signal.SIGKILL
    assert_gone(other)


async def test_one_whose_actor_was_stopped_is_ended_as_well(place: Place) -> None:
    process = await place.launch(worker(IGNORES_SIGTERM))
    actor = psutil.Process(process.pid).parent()
    assert actor is not None
    actor.suspend()
    process.stop()
    process.stop(at_once=True)
    assert (await soon(process.wait())).status == -signal.SIGKILL
    assert_gone(actor)


async def test_more_ranks_than_there_is_room_for_are_refused_before_anything_starts(
    place: Place,
) -> None:
    with pytest.raises(ConfigError, match="does not have that much"):
        await place.launch(worker(SERVES_UNTIL_SIGTERM, ranks=2 * RANKS_PER_NODE + 1))


async def test_a_start_that_is_given_up_gives_its_room_back(place: Place) -> None:
    start = asyncio.ensure_future(place.launcher.launch(worker(SERVES_UNTIL_SIGTERM)))
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    within(lambda: None if is_placing() else True, "the thread that was left has ended")
    assert groups_that_stand(place.session) == []


def is_placing() -> bool:
    return any(thread.name == "placement" for thread in threading.enumerate())


async def test_an_actor_that_is_stopped_before_it_starts_the_process_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    actors: list[psutil.Process] = []

    def stopped_hosts(session: RaySession, places: Mapping[str, ActorPlace]) -> list[Host]:
        hosts = begin_hosts(session, places)
        actors.extend(psutil.Process(host.facts.pid) for host in hosts)
        for actor in actors:
            actor.suspend()
        return hosts

    monkeypatch.setattr(launcher, "begin_hosts", stopped_hosts)
    monkeypatch.setattr(launcher, "START_TIMEOUT_S", 0.5)
    with pytest.raises(ConfigError, match="did not answer within"):
        await place.launch(worker(SERVES_UNTIL_SIGTERM))
    assert_gone(*actors)


async def test_two_fleets_of_one_cluster_may_have_one_pid_and_one_name_for_a_worker(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    other = Place(place.session, tmp_path)
    for fleet in (place, other):
        await fleet.launch(worker(SERVES_UNTIL_SIGTERM))
    await other.close()


def test_a_name_that_another_has_is_a_typed_error_and_leaves_nothing(session: RaySession) -> None:
    group = place_group(session, "of-the-first", [ONE])
    with pytest.raises(ConfigError, match="refuses the placement group of-the-first"):
        place_group(session, "of-the-first", [ONE])
    node = ActorPlace(node_id=session.node_id)
    (host,) = begin_hosts(session, {"of-the-first": node})
    with pytest.raises(ConfigError, match="did not begin"):
        begin_hosts(session, {"new": node, "of-the-first": node})
    host.end(session)
    group.remove(session)


async def test_what_a_process_is_told_of_its_node_is_said_at_each_launch_and_stays_for_a_node(
    place: Place,
) -> None:
    seen: list[NodeFacts] = []

    def argv_at(node: NodeFacts) -> tuple[str, ...]:
        seen.append(node)
        return program(SERVES_UNTIL_SIGTERM, name="decode-0").argv

    for _ in range(2):
        spec = replace(worker(RAISES), argv_at=argv_at)
        process = await place.launch(spec)
        process.stop(at_once=True)
        await soon(process.wait())
    own, _ = place.session.nodes()
    first, second = (replace(node, free_memory_share_now=0.0) for node in seen)
    assert first == second and first.address == own.address
    assert all(0 < node.free_memory_share_now <= 1 for node in seen)
    assert 0 < seen[0].free_memory_share <= 1 and seen[0].num_cores == available_cores()


async def test_a_head_that_answers_nobody_is_told_and_a_process_ends_without_it(
    session: RaySession, raylets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "watch_head", partial(watch_head, silence_s=1.0))
    place = Place(session, tmp_path, patience_s=0.5)
    process = await place.launch(worker(SERVES_UNTIL_SIGTERM))
    await soon(anext(process.reports()))
    head = psutil.Process(raylets.head_node.all_processes["gcs_server"][0].process.pid)
    head.suspend()
    try:
        with pytest.raises(PlaceLost):
            await soon(place.launcher.until_lost())
        process.stop()
        assert (await soon(process.wait())).in_words == "signal SIGTERM"
        place.launcher.close()
    finally:
        head.resume()
    within(lambda: None if groups_that_stand(session) else True, "what was left is given back")
    assert_no_actor(session)
