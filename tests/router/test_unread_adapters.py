"""A fleet whose workers still read their adapters: names that nobody knows may come, and which."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx
import msgspec
import pytest

from cluster.adapter import NOTHING_UNREAD, UnreadAdapters
from cluster.generation import EngineLoad
from cluster.membership.hold import HoldKind
from cluster.membership.member import Member
from cluster.world import World
from router.control.plane import FleetPlane
from router.fleet.first_look import HEAR_ALL_S
from router.fleet.fleet_adapters import FleetAdapters
from router.front.served_model import UNREAD_RETRY_S, ServedModel
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.api.test_adapters_over_http import adapted_model
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.front_fakes import MODEL, running_front, says
from tests.router.planes import prefill_member, running_plane
from tests.router.test_keys_at_the_doors import CHAT, COMPLETIONS, Keys, http, over_grpc
from tests.router.test_router_process import running_router

TWO, ANY = UnreadAdapters(frozenset({"two"})), UnreadAdapters(may_be_any=True)
OTHERS = UnreadAdapters(frozenset({"four", "five"}))
UNREAD, UNKNOWN = (503, "adapter_unread"), (404, "model_not_found")


@dataclass
class Reading:
    """What workers read."""

    unread: UnreadAdapters = NOTHING_UNREAD

    def __call__(self) -> UnreadAdapters:
        return self.unread

    @property
    def model(self) -> ServedModel:
        return replace(adapted_model(), unread_adapters=self)


def told_by(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
async def test_a_name_that_is_read_may_be_tried_again_and_one_that_is_misspelt_may_not(
    padding: int,
) -> None:
    reading = Reading(TWO)
    async with running_front(model=reading.model) as front, httpx.AsyncClient() as client:

        async def asked(name: str) -> httpx.Response:
            body = msgspec.json.encode({"model": name, "prompt": "Hi"}) + b" " * padding
            headers = {"content-type": "application/json"}
            return await client.post(f"{front.url}/v1/completions", content=body, headers=headers)

        told = await asked("two")
        assert told_by(told) == UNREAD and "`two`" in told.json()["error"]["message"]
        assert int(told.headers["retry-after"]) >= UNREAD_RETRY_S
        assert (await client.get(f"{front.url}/v1/models/two")).status_code == 503
        for name in ("one", MODEL):
            assert (await asked(name)).status_code == 200
        assert told_by(await asked("tow")) == UNKNOWN
        assert (await client.get(f"{front.url}/v1/models/tow")).status_code == 404
        reading.unread = ANY
        assert told_by(await asked("tow")) == UNREAD
        reading.unread = NOTHING_UNREAD
        assert told_by(await asked("two")) == UNKNOWN


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
async def test_a_key_learns_nothing_of_names_that_it_is_not_for(
    tmp_path: Path, padding: int
) -> None:
    reading, keys = Reading(TWO), Keys(tmp_path / "keys.json")
    key = keys.add("acme", models=(MODEL,))
    options = {"model": reading.model, "api_keys": str(keys.path)}
    async with (
        running_router(says("Hello"), **options) as router,  # type: ignore[arg-type]
        http(router, key) as client,
    ):
        for reading.unread, expected in ((TWO, UNKNOWN), (ANY, UNREAD)):
            for name in ("one", "two", "three"):
                body = msgspec.json.encode({**CHAT, "model": name}) + b" " * padding
                told = await client.post(
                    COMPLETIONS, content=body, headers={"content-type": "application/json"}
                )
                assert told_by(told) == expected, name
                page = await client.get(f"/v1/models/{name}")
                assert told_by(page) == expected and f"`{name}`" in page.text


@pytest.mark.parametrize("unread", [UnreadAdapters(frozenset({"another"})), ANY])
async def test_a_key_for_adapters_alone_is_let_in_while_they_are_read(
    tmp_path: Path, unread: UnreadAdapters
) -> None:
    reading, keys = Reading(unread), Keys(tmp_path / "keys.json")
    asks = {**CHAT, "model": "another"}
    options = {"model": reading.model, "api_keys": str(keys.path)}
    async with (
        running_router(says("Hello"), **options) as router,  # type: ignore[arg-type]
        http(router, keys.other_model) as client,
    ):
        assert told_by(await client.post(COMPLETIONS, json=asks)) == UNREAD
        with pytest.raises(grpc.aio.AioRpcError) as over:
            await over_grpc(router, keys.other_model)
        assert over.value.code() == grpc.StatusCode.PERMISSION_DENIED  # the model's own name
        for path in (COMPLETIONS, "/tokenize"):
            assert told_by(await client.post(path, json=CHAT)) == (403, "not_allowed")
        for reading.unread in (OTHERS, NOTHING_UNREAD):
            assert told_by(await client.post(COMPLETIONS, json=asks)) == (403, "not_allowed")


@dataclass
class Hands:
    """A clock that a test moves."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def plane_of(clock: Hands) -> AsyncIterator[FleetPlane]:
    async with running_plane(world=World(clock=clock), worker_lease_s=1e6) as plane:
        yield plane


async def test_a_fleet_has_the_unread_names_of_workers_that_answer() -> None:
    prefill, clock = prefill_member("prefill-0"), Hands()
    async with FakeDecodeWorker() as worker, plane_of(clock) as plane:
        decode = worker.member()
        for member in (decode, prefill):
            await plane.store.join(member)
        await until(lambda: plane.fleet.find(decode.key) is not None)
        clock.now_s += HEAR_ALL_S
        orders, load = plane.adapter_orders, EngineLoad()
        unread = plane.adapters.unread
        assert unread() == NOTHING_UNREAD and not orders.may_be_known("two")
        await plane.store.beat(prefill.key, load, draining=False, unread_adapters=TWO)
        assert unread() == NOTHING_UNREAD
        assert orders.may_be_known("two") and not orders.may_be_known("tow")
        await plane.store.beat(decode.key, load, draining=False, unread_adapters=OTHERS)
        assert unread() == OTHERS
        plane.store.report(decode.key, load)
        assert unread() == OTHERS, "frames of its session say nothing of it"
        await plane.store.beat(decode.key, load, draining=False, unread_adapters=ANY)
        assert unread() == ANY and orders.may_be_known("tow")
        await plane.store.beat(decode.key, load, draining=False)
        await plane.store.beat(prefill.key, load, draining=False)
        assert unread() == NOTHING_UNREAD and not orders.may_be_known("two")


@asynccontextmanager
async def plane_told_of_two(clock: Hands) -> AsyncIterator[tuple[FleetPlane, Member]]:
    """Of one decode worker, which has that to read."""
    async with FakeDecodeWorker() as worker, plane_of(clock) as plane:
        decode = worker.member()
        await plane.store.join(decode)
        clock.now_s += HEAR_ALL_S
        await plane.store.beat(decode.key, EngineLoad(), draining=False, unread_adapters=TWO)
        yield plane, decode


async def test_unread_names_are_put_together_once_for_all_who_ask_until_workers_say_others() -> (
    None
):
    """Anybody may ask for a name that nobody knows, however many workers there are."""
    load = EngineLoad()
    async with plane_told_of_two(Hands()) as (plane, decode):
        unread = plane.adapters.unread
        before = unread()
        assert before == TWO and unread() is before
        plane.store.report(decode.key, load)
        assert unread() is before
        await plane.store.beat(decode.key, load, draining=False, unread_adapters=OTHERS)
        assert unread() == OTHERS


async def test_what_a_worker_has_to_read_that_is_to_leave_does_not_come() -> None:
    async with plane_told_of_two(Hands()) as (plane, decode):
        for kind, expected in (
            (HoldKind.DRAIN, NOTHING_UNREAD),
            (HoldKind.CORDON, TWO),
            (HoldKind.NONE, TWO),
        ):
            plane.fleet.holds.order(decode.worker_id, kind)
            assert plane.adapters.unread() == expected
        await plane.store.beat(decode.key, EngineLoad(), draining=True, unread_adapters=TWO)
        assert plane.adapters.unread() == NOTHING_UNREAD


async def test_a_key_for_an_adapter_that_is_there_is_let_in_without_a_look_at_those_unread(
    tmp_path: Path,
) -> None:
    num_asked, keys = 0, Keys(tmp_path / "keys.json")

    def unread() -> UnreadAdapters:
        nonlocal num_asked
        num_asked += 1
        return NOTHING_UNREAD

    model = replace(adapted_model(), unread_adapters=unread)
    key = keys.add("acme", models=("one",))
    options = {"model": model, "api_keys": str(keys.path)}
    async with (
        running_router(says("Hello"), **options) as router,  # type: ignore[arg-type]
        http(router, key) as client,
    ):
        for _ in range(3):
            told = await client.post(COMPLETIONS, json={**CHAT, "model": "one"})
            assert told.status_code == 200
        assert num_asked == 0


async def test_of_a_router_that_has_just_started_any_name_may_come_until_workers_are_back() -> None:
    clock = Hands()
    async with plane_of(clock) as plane:
        assert plane.adapters.unread() == ANY
        assert not plane.adapter_orders.may_be_known("two"), "operators name what is there"
        clock.now_s += HEAR_ALL_S
        assert plane.adapters.unread() == NOTHING_UNREAD


async def test_a_router_has_just_started_when_workers_may_come() -> None:
    """And not when it was put together."""
    clock = Hands()
    async with plane_of(clock) as plane:
        adapters = FleetAdapters(plane.fleet, clock)
        clock.now_s += 2 * HEAR_ALL_S
        assert adapters.unread() == ANY
        adapters.begin()
        assert adapters.unread() == ANY
        clock.now_s += HEAR_ALL_S
        assert adapters.unread() == NOTHING_UNREAD
