"""Streams over HTTP whose connection breaks: another request gets the rest, word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.router.api.told_streams import (
    ASKED,
    COMPLETION,
    TEXT,
    Told,
    read,
    says_on,
)
from tests.router.front_fakes import Front, running_front, tool_model


@pytest.mark.parametrize("kind", ASKED)
async def test_the_rest_comes_as_if_nothing_had_been(kind: str) -> None:
    path, asked = ASKED[kind]
    body = asked | {"stream": True, "resumable": True}
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        whole = Told()
        assert await read(front, whole, path, body)
        assert all(whole.ids) and whole.reasons == ["stop" if "stop" in asked else "length"] * 2
        for up_to in range(1, len(whole.ids) + 1):
            told = Told()
            assert not await read(front, told, path, body, up_to)
            assert await read(front, told, path, {})
            assert told.everything() == whole.everything()
            assert len(told.envelopes) == 1


@pytest.mark.parametrize("changes", [{}, {"reasoning_format": "none"}])
async def test_a_resumable_stream_of_a_model_that_thinks_tells_thoughts_as_content(
    changes: dict[str, Any],
) -> None:
    path, asked = ASKED["a chat"]
    body = asked | {"stream": True, "resumable": True, "stop": None} | changes
    text = "<think>Hm.</think>Yes"
    model = replace(tool_model(), context_limit=lambda: 100_000)
    async with running_front(says_on(text), model=model, keeps_streams=True) as front:
        whole, told = Told(), Told()
        assert await read(front, whole, path, body)
        assert not await read(front, told, path, body, 3)
        assert await read(front, told, path, {})
    assert told.everything() == whole.everything()
    assert whole.texts[0].startswith("<think>Hm.</think>")


async def test_a_stream_that_nobody_asked_to_resume_has_no_ids(front: Front) -> None:
    told = Told()
    assert await read(front, told, *ASKED["a chat"][:1], ASKED["a chat"][1] | {"stream": True})
    assert not any(told.ids)


@pytest.mark.parametrize(
    "changes",
    [{"stream": False}, {"prompt": ["a", "b"]}, {"echo": True}],
    ids=["no stream", "two prompts", "echo"],
)
async def test_what_nobody_could_have_the_rest_of_is_refused(changes: dict[str, Any]) -> None:
    body = COMPLETION | {"stream": True, "resumable": True} | changes
    async with running_front(keeps_streams=True) as front, httpx.AsyncClient() as client:
        answer = await client.post(f"{front.url}/v1/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "resumable"


async def test_what_is_not_kept_or_begun_elsewhere_is_an_error_of_its_own() -> None:
    path, asked = ASKED["a chat"]
    unknown = {"Last-Event-ID": f"{'0' * 32}:-"}
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        told = Told()
        await read(front, told, path, asked | {"stream": True, "resumable": True}, 1)
        async with httpx.AsyncClient(base_url=front.url) as client:
            answer = await client.post(path, json={}, headers=unknown)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_resumable")
            headers = {"Last-Event-ID": told.ids[-1]}
            answer = await client.post("/v1/completions", json={}, headers=headers)
            assert answer.status_code == 400


async def test_a_router_that_keeps_nothing_says_so(front: Front) -> None:
    async with httpx.AsyncClient(base_url=front.url) as client:
        headers = {"Last-Event-ID": f"{'0' * 32}:-"}
        answer = await client.post("/v1/completions", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_resumable")


@pytest.mark.parametrize("keeps_streams", [True, False])
async def test_the_id_of_another_servers_event_is_nothing_to_an_ordinary_request(
    keeps_streams: bool,
) -> None:
    """Libraries for server-sent events send the last id that they have read, wherever that was."""
    headers = {"Last-Event-ID": "42", "Content-Type": "application/json"}
    async with (
        running_front(says_on(TEXT), keeps_streams=keeps_streams) as front,
        httpx.AsyncClient(base_url=front.url) as client,
    ):
        answer = await client.post("/v1/completions", json=COMPLETION, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["choices"]
        answer = await client.post("/v1/completions", headers=headers)
        assert answer.status_code == (400 if keeps_streams else 404)
