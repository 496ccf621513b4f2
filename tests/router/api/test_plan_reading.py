"""Small bodies, which the router's loop reads itself."""

from __future__ import annotations

from typing import Any, NoReturn

import httpx
import pytest

from router.api.reading.chat_reader import ChatReader
from router.api.reading.tokenize_reader import TokenizeReader
from tests.router.front_fakes import running_front

SAID = [{"role": "user", "content": "Hi"}]


def goes_down(*_: Any) -> NoReturn:
    raise RecursionError


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_what_goes_down_too_deep_is_refused_as_a_text_worker_does(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatReader, "read", goes_down)
    monkeypatch.setattr(TokenizeReader, "split", goes_down)
    async with running_front() as front, httpx.AsyncClient(base_url=front.url) as client:
        reply = await client.post(path, json={"messages": SAID})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "the request is nested too deeply; flatten it"
