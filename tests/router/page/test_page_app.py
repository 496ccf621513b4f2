"""The page over HTTP: files, the door, the stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from cluster.identity import Role
from cluster.join_token import JOIN_TOKEN
from cluster.process.background import Background, nothing_needed
from cluster.process.loop_share import LoopShare
from router.api.http.asgi import AsgiMessage
from router.control.plane import FleetPlane
from router.front.caller import caller_at
from router.front.limits import DoorLimits
from router.page.door import DoorRules, PageDoor
from router.page.page_app import PageApp, page_limits
from router.page.watchers import MAX_WATCHERS, Watchers
from tests.manual_clock import ManualClock
from tests.router.fake_decode_worker import until
from tests.router.page.staged import StagedPage, joined, lasting_plane, page_of, survey_of

TOKEN = "a-token-of-this-fleet"


@asynccontextmanager
async def client_of(staged: StagedPage) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=staged.url, timeout=30) as client:
        yield client


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)


async def events_of(answer: httpx.Response) -> AsyncIterator[dict]:
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def first_event(client: httpx.AsyncClient, **headers: str) -> dict:
    async with client.stream("GET", "/events", headers=headers) as answer:
        assert answer.status_code == 200
        async for event in events_of(answer):
            return event
    raise AssertionError("the stream ended")


async def test_every_file_that_the_page_names_is_there_and_nothing_of_another_host() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        index = await client.get("/")
        assert index.headers["content-type"].startswith("text/html")
        policy = index.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert index.headers["referrer-policy"] == "no-referrer"
        assert "style=" not in index.text and "onclick" not in index.text
        assert index.text.count("<script") == 1 and "<style" not in index.text
        for path in ("/page.css", "/page.js", "/icon.svg", "/live.js", "/pools.js"):
            file = await client.get(path)
            assert file.status_code == 200 and "nosniff" in file.headers["x-content-type-options"]
            again = await client.get(path, headers={"if-none-match": file.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert (await client.head("/")).status_code == 200


async def test_paths_and_methods_that_are_none_are_refused_in_json() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("GET", "/..%2f..%2fetc/passwd", 404),
            ("GET", "/__init__.py", 404),
            ("GET", "/metrics", 404),
            ("POST", "/", 405),
            ("POST", "/events", 405),
            ("PUT", "/session", 405),
        ):
            answer = await client.request(method, path)
            assert answer.status_code == status, path
            assert answer.json()["error"]["code"] and "content-security-policy" in answer.headers


async def test_on_this_machine_counts_are_shown_and_with_the_token_names() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        await joined(plane, Role.PREFILL, "prefill-0")
        told = (await client.get("/session")).json()
        assert told == {"sight": "counts", "can_sign_in": True}
        assert (await first_event(client))["workers"][0]["id"] == "prefill-0"
        answer = await client.post("/session", json={"token": TOKEN})
        assert answer.json()["sight"] == "names" and TOKEN not in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert (await client.get("/session")).json()["sight"] == "names"
        assert (await client.delete("/session")).json()["sight"] == "nothing"
        assert (await client.get("/session")).json()["sight"] == "counts"


async def test_a_stranger_learns_nothing() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        await joined(plane, Role.PREFILL, "prefill-0")
        strange = {"host": "fleet.example"}
        assert (await client.get("/session", headers=strange)).json()["sight"] == "nothing"
        answer = await client.get("/events", headers=strange)
        assert answer.status_code == 401 and "prefill" not in answer.text
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}):
            assert (await client.get("/events", headers=headers)).status_code == 403
        assert page.listener.num_watchers == 0


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"token": "wrong-token-of-another"}', "application/json", 401),
        (b'{"token": "\\ud800"}', "application/json", 400),
        (b'{"token": 7}', "application/json", 400),
        (b'{"token": "x", "role": "names"}', "application/json", 400),
        (b"not json", "application/json", 400),
        (b"[" * 4000, "application/json", 400),
        (b'{"token": "' + b"x" * 5000 + b'"}', "application/json", 413),
        (f"token={TOKEN}".encode(), "application/x-www-form-urlencoded", 400),
    ],
)
async def test_what_is_no_token_opens_nothing(body: bytes, kind: str, status: int) -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        answer = await client.post("/session", content=body, headers={"content-type": kind})
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers


async def test_snapshots_follow_the_fleet() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        async with client.stream("GET", "/events") as answer:
            events = events_of(answer)
            first = await anext(events)
            assert first["num_workers"] == 0 and "no decode worker" in first["problem"]
            await joined(plane, Role.PREFILL, "prefill-0")
            page.is_draining = True
            async with asyncio.timeout(30):
                while not (seen := await anext(events))["num_workers"]:
                    pass
            assert seen["draining"] and seen["seq"] > first["seq"]
        await until(lambda: page.listener.num_watchers == 0)


async def test_a_stream_ends_with_its_session() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        await client.post("/session", json={"token": TOKEN})
        async with client.stream("GET", "/events") as answer:
            events = events_of(answer)
            await anext(events)
            await client.delete("/session")
            async with asyncio.timeout(30):
                async for _ in events:
                    pass
        await until(lambda: page.listener.num_watchers == 0)


async def test_the_seventeenth_watcher_is_told_to_come_again() -> None:
    async with lasting_plane() as plane, page_of(plane) as page, client_of(page) as client:
        streams = [client.stream("GET", "/events") for _ in range(MAX_WATCHERS)]
        answers = [await stream.__aenter__() for stream in streams]
        assert {each.status_code for each in answers} == {200}
        refused = await client.get("/events")
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        await streams[0].__aexit__(None, None, None)
        await until(lambda: page.listener.num_watchers < MAX_WATCHERS)
        assert (await first_event(client))["seq"] >= 1
        for stream in streams[1:]:
            await stream.__aexit__(None, None, None)


async def test_a_watcher_that_does_not_read_is_cut() -> None:
    """What was written waits for it, and what comes next is never taken."""
    cut, backed_up = asyncio.Event(), asyncio.Event()
    never = asyncio.get_running_loop().create_future()

    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": b""}

    async def send(message: AsgiMessage) -> None:
        if message["type"] == "http.response.body":
            backed_up.set()
            await never

    state = {
        "caller": caller_at("127.0.0.1", 1),
        "is_backed_up": lambda: True,
        "abort_connection": cut.set,
        "on_leaving": lambda listener: None,
    }
    headers = [(b"host", b"localhost")]
    scope = {"method": "GET", "path": "/events", "headers": headers, "scheme": "http"}
    async with lasting_plane() as plane:
        app = app_of(plane, replace(page_limits(5.0), reader_timeout_s=0.05))
        await app(
            {"type": "http", "client": ("127.0.0.1", 1), "state": state, **scope}, receive, send
        )
        assert backed_up.is_set() and cut.is_set()
        assert app._watchers.num_watchers == 0


def app_of(plane: FleetPlane, limits: DoorLimits) -> PageApp:
    watchers = Watchers(survey_of(plane), Background(nothing_needed), asyncio.sleep)
    door = PageDoor(DoorRules((TOKEN,), True, "splitserve_page_1"), ManualClock())
    return PageApp(door, watchers, limits, LoopShare())
