"""Predicted outputs of a chat, by OpenAI's client: to the worker as tokens, back in usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest
from openai import AsyncOpenAI

from router.dispatch.stream import Completed, RoutedRequest, StreamEvent
from tests.router.front_fakes import MODEL, Front, Script, running_front, says

ASK: Any = [{"role": "user", "content": "Hi"}]


def with_guesses(accepted: int, rejected: int) -> Script:
    plain = says("Hello world")

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in plain(request):
            if isinstance(event, Completed):
                usage = msgspec.structs.replace(
                    event.usage,
                    accepted_prediction_tokens=accepted,
                    rejected_prediction_tokens=rejected,
                )
                event = Completed(usage, event.timing)
            yield event

    return run


async def test_a_prediction_goes_to_the_worker_as_tokens_and_usage_says_what_came_of_it() -> None:
    async with (
        running_front(with_guesses(4, 2)) as front,
        AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, prediction={"type": "content", "content": "Hello"}
        )
        parts: Any = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
        await client.chat.completions.create(
            model=MODEL, messages=ASK, prediction={"type": "content", "content": parts}
        )
        assert [bytes(each.prediction) for each in front.source.requests] == [b"Hello"] * 2
        assert answer.usage is not None
        details = answer.usage.completion_tokens_details
        assert details is not None
        assert details.accepted_prediction_tokens == 4
        assert details.rejected_prediction_tokens == 2
        assert answer.usage.completion_tokens == 12


async def test_without_a_prediction_nothing_is_said_of_one(front: Front) -> None:
    async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as client:
        for prediction in (None, {"type": "content", "content": ""}):
            answer = await client.chat.completions.create(
                model=MODEL, messages=ASK, extra_body={"prediction": prediction}
            )
            assert answer.usage is not None
            assert answer.usage.completion_tokens_details is None
    assert [each.prediction for each in front.source.requests] == [[], []]


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ({"type": "guess", "content": "x"}, "prediction.type"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "prediction.content[0]"),
        ({"type": "content", "content": "x" * 16_385}, "prediction"),
    ],
)
async def test_what_is_no_prediction_is_refused_by_name(
    prediction: dict[str, Any], param: str, front: Front
) -> None:
    async with httpx.AsyncClient() as client:
        body = {"model": MODEL, "messages": ASK, "prediction": prediction}
        reply = await client.post(f"{front.url}/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert not front.source.requests
