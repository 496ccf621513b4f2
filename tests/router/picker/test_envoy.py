"""The real Envoy asks the router which vLLM server gets a request, and sends it there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.picker.gateway_messages import ENDPOINT
from tests.router.front_fakes import until
from tests.router.picker.behind import Behind, behind
from tests.router.picker.envoy import envoy
from tests.router.picker.test_endpoint_picker import homes_of, key_of, prompt, secret_of

pytestmark = [pytest.mark.long]
MAX_AT_ONCE = 10
BOTH_MODES = pytest.mark.parametrize("mode", ["BUFFERED", "FULL_DUPLEX_STREAMED"])


@asynccontextmanager
async def gateway(
    mode: str, folder: Path, num_servers: int = 2, **options: object
) -> AsyncIterator[tuple[httpx.AsyncClient, Behind]]:
    async with (
        behind(num_servers, **options) as router,
        envoy(router.picker, mode, folder) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        yield client, router


@BOTH_MODES
async def test_answers_come_whole_from_the_server_that_was_picked(
    mode: str, tmp_path: Path
) -> None:
    async with gateway(mode, tmp_path, num_servers=3) as (client, router):
        homes = await homes_of(router)
        for _ in range(2):
            for word, home in homes.items():
                head = {ENDPOINT: "127.0.0.1:9"}  # a client's own word counts for nothing
                answer = await client.post("/v1/completions", json=prompt(word), headers=head)
                assert answer.status_code == 200, answer.text
                assert answer.json()["choices"][0]["text"] == home, "where its prefix is"
                await until(lambda: router.num_in_flight == 0, "it is over here, too")
        for server in router.servers:
            assert [body["model"] for body in server.asked] == ["smollm2"] * 2


@BOTH_MODES
async def test_a_stream_passes_token_by_token_and_counts_until_its_end(
    mode: str, tmp_path: Path
) -> None:
    async with gateway(mode, tmp_path) as (client, router):
        for server in router.servers:
            server.goes_on.clear()
        chat = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 3}
        async with client.stream("POST", "/v1/chat/completions", json=chat) as answer:
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("data: {")
            assert router.num_in_flight == 1
            for server in router.servers:
                server.goes_on.set()
            rest = [line async for line in lines if line]
        assert len(rest) == 3 and rest[-1] == "data: [DONE]"
        await until(lambda: router.num_in_flight == 0, "it is over")


@BOTH_MODES
async def test_a_large_body_arrives_as_it_was_sent(mode: str, tmp_path: Path) -> None:
    async with gateway(mode, tmp_path) as (client, router):
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
        large = json.dumps(chat) + " " * 200_000
        head = {"content-type": "application/json"}
        answer = await client.post("/v1/chat/completions", content=large, headers=head)
        assert answer.status_code == 200, answer.text
        models = await client.get("/v1/models")
        assert models.status_code == 200 and models.json()["data"][0]["id"] == "byte-model"
        (asked,) = [body for server in router.servers for body in server.asked]
        assert asked["messages"] == chat["messages"]


@BOTH_MODES
async def test_refusals_are_the_routers_own(mode: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a") | {"requests_per_minute": 1}]}))
    async with gateway(mode, tmp_path, api_keys=str(keys)) as (client, router):
        answer = await client.post("/v1/completions", json=prompt("one"))
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
        client.headers["authorization"] = f"Bearer {secret_of('a')}"
        statuses = []
        while 429 not in statuses:  # as many as a minute has at once
            assert len(statuses) < MAX_AT_ONCE
            answer = await client.post("/v1/completions", json=prompt("one"))
            statuses.append(answer.status_code)
        assert (
            set(statuses) == {200, 429}
            and answer.status_code == 429
            and int(answer.headers["retry-after"]) > 0
        )
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        heads = [head for server in router.servers for head in server.heads]
        assert len(heads) == statuses.count(200)
        assert not any("authorization" in head for head in heads), "keys stay at the router"


@BOTH_MODES
async def test_a_client_that_leaves_frees_its_place(mode: str, tmp_path: Path) -> None:
    async with gateway(mode, tmp_path) as (client, router):
        for server in router.servers:
            server.goes_on.clear()
        asked = prompt("one") | {"stream": True}
        async with client.stream("POST", "/v1/completions", json=asked) as answer:
            await anext(answer.aiter_lines())
            assert router.num_in_flight == 1
        await until(lambda: router.num_in_flight == 0, "its place is free")


@BOTH_MODES
async def test_an_answer_ends_at_its_clients_deadline_at_the_server_too(
    mode: str, tmp_path: Path
) -> None:
    async with gateway(mode, tmp_path, num_servers=1) as (client, router):
        (server,) = router.servers
        server.goes_on.clear()
        asked = prompt("one") | {"stream": True}
        head = {"x-request-timeout": "1"}
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("POST", "/v1/completions", json=asked, headers=head) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_lines():
                    assert router.num_in_flight == 1
        await until(lambda: server.num_broken_off == 1, "the server stops")
        assert router.num_in_flight == 0


@BOTH_MODES
async def test_who_has_no_answer_by_its_deadline_is_told_so(mode: str, tmp_path: Path) -> None:
    async with gateway(mode, tmp_path, num_servers=1) as (client, router):
        router.servers[0].answers.clear()
        head = {"x-request-timeout": "1"}
        answer = await client.post("/v1/completions", json=prompt("one"), headers=head)
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline_exceeded"


async def test_a_pool_without_servers_answers_503(tmp_path: Path) -> None:
    mode = "FULL_DUPLEX_STREAMED"
    async with gateway(mode, tmp_path, num_servers=1, worker_lease_s=0.3) as (client, router):
        router.servers[0].is_well = False
        await until(lambda: not router.plane.fleet.members, "the server is given up")
        answer = await client.post("/v1/completions", json=prompt("one"))
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "no_worker"
