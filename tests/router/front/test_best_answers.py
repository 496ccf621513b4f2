"""best_of, and what is asked of a beam search, at both doors of a router over a scripted source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import httpx
import pytest

from cluster.beam_search import BeamSearch, EarlyStopping
from cluster.generation import FinishReason, GeneratedToken
from protos import generation_pb2, inference_pb2
from router.dispatch.stream import ChoiceTokens, RoutedRequest, StreamEvent
from router.front.held_answers import MAX_HELD_LOGPROBS, MAX_SEARCH_LOGPROBS
from tests.router.front_fakes import (
    CONTEXT_TOKENS,
    MODEL,
    Front,
    Script,
    completed,
    running_front,
    says,
    tool_model,
)
from tests.router.grpc_front.test_grpc_inference import running_grpc

WORTH = {"poor": -3.0, "best": -0.25, "good": -0.5, "dear": -0.5, "last": -9.0}


def unequal_answers(*texts: str) -> Script:
    """Choice i says the i-th text, each of whose tokens has the text's logprob; they come in two
    pieces, all choices in turn."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        assert request.sampling.n == len(texts)
        assert request.sampling.logprobs is not None
        top = ((65, -0.1), (66, -0.2))[: request.sampling.logprobs]
        answers = [[GeneratedToken(b, WORTH[text], top) for b in text.encode()] for text in texts]
        for choice, tokens in enumerate(answers):
            await asyncio.sleep(0)
            yield ChoiceTokens(choice, tokens[:2])
        for choice, tokens in enumerate(answers):
            yield ChoiceTokens(choice, tokens[2:], FinishReason.LENGTH)
        yield completed(request, sum(map(len, answers)))

    return run


async def posted(front: Front, path: str, **fields: Any) -> httpx.Response:
    prompt: dict[str, Any] = {"prompt": "Hi"}
    if path == "chat/completions":
        prompt = {"messages": [{"role": "user", "content": "Hi"}]}
    async with httpx.AsyncClient() as client:
        body = {"model": MODEL, "max_tokens": 4} | prompt | fields
        return await client.post(f"{front.url}/v1/{path}", json=body)


def texts_of(answer: dict[str, Any]) -> list[str]:
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return [
        choice["text"] if "text" in choice else choice["message"]["content"]
        for choice in answer["choices"]
    ]


PATHS = pytest.mark.parametrize("path", ["completions", "chat/completions"])


@PATHS
async def test_the_answers_with_the_highest_mean_logprob_are_told_best_first(path: str) -> None:
    async with running_front(unequal_answers("poor", "good", "last", "best", "dear")) as front:
        response = await posted(front, path, n=3, best_of=5)
        answer = response.json()
        assert texts_of(answer) == ["best", "good", "dear"]  # of equals the first
        assert all(choice["finish_reason"] == "length" for choice in answer["choices"])
        assert all(choice.get("logprobs") is None for choice in answer["choices"])
        assert answer["usage"]["completion_tokens"] == 5 * 4  # all of them count
        [asked] = front.source.requests
        assert (asked.sampling.n, asked.sampling.logprobs) == (5, 0)


async def test_a_text_that_a_stop_string_ends_is_judged_by_what_is_left_of_it() -> None:
    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        for choice, text in enumerate(("ab", "cd")):
            tokens = [GeneratedToken(byte, -0.5 - choice) for byte in f"{text}|".encode()]
            behind = GeneratedToken(ord("x"), -50.0 * (1 - choice))
            yield ChoiceTokens(choice, [*tokens, behind], FinishReason.LENGTH)
        yield completed(request, 8)

    async with running_front(run) as front:
        answer = (await posted(front, "completions", best_of=2, stop="|")).json()
    assert texts_of(answer) == ["ab"]  # what comes behind the stop says nothing of it


async def test_best_of_several_prompts_is_chosen_for_each() -> None:
    async with running_front(unequal_answers("poor", "best")) as front:
        answer = (await posted(front, "completions", prompt=["a", "b"], best_of=2)).json()
        assert texts_of(answer) == ["best", "best"]
        assert answer["usage"]["completion_tokens"] == 16


async def test_logprobs_are_told_where_they_are_asked_for() -> None:
    async with running_front(unequal_answers("poor", "best")) as front:
        answer = (await posted(front, "completions", best_of=2, logprobs=1)).json()
        assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-0.25] * 4


async def test_as_many_as_are_told_are_simply_n() -> None:
    async with running_front(says("Hello")) as front:
        answer = (await posted(front, "completions", n=2, best_of=2, stream=False)).json()
        assert len(answer["choices"]) == 2
        assert front.source.requests[0].sampling.logprobs is None


async def test_a_search_reaches_the_worker_as_it_was_asked_for() -> None:
    asked = {
        "use_beam_search": True,
        "best_of": 4,
        "n": 2,
        "length_penalty": 0.5,
        "early_stopping": "never",
    }
    async with running_front(says("Hello")) as front:
        for path in ("completions", "chat/completions"):
            answer = (await posted(front, path, **asked)).json()
            assert len(answer["choices"]) == 2
        for request in front.source.requests:
            assert request.sampling.n == 2
            assert request.sampling.beams == BeamSearch(
                width=4, length_penalty=0.5, early_stopping=EarlyStopping.NEVER_BETTER
            )
            assert request.num_sequences == 4
            assert request.num_choices == 2


async def test_a_search_goes_beside_tools_that_are_not_offered() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    wishes = {"use_beam_search": True, "n": 2, "tools": tools}
    async with running_front(says("Hello"), model=tool_model()) as front:
        answer = await posted(front, "chat/completions", tool_choice="none", **wishes)
        assert len(answer.json()["choices"]) == 2
        refused = await posted(front, "chat/completions", **wishes)
    assert refused.json()["error"]["param"] == "tools"


@pytest.mark.parametrize(
    ("said", "stopping"),
    [
        ({}, EarlyStopping.NO_BETTER_NOW),
        ({"early_stopping": False}, EarlyStopping.NO_BETTER_NOW),
        ({"early_stopping": True}, EarlyStopping.AT_ONCE),
    ],
)
async def test_n_is_the_width_and_stopping_is_transformers_default(
    said: dict[str, Any], stopping: EarlyStopping
) -> None:
    async with running_front(says("Hello")) as front:
        await posted(front, "completions", use_beam_search=True, n=3, **said)
        assert front.source.requests[0].sampling.beams == BeamSearch(
            width=3, early_stopping=stopping
        )


JSON = {"type": "json_object"}
REFUSED = [
    ({"use_beam_search": True}, "n"),
    ({"use_beam_search": True, "n": 17}, "n"),
    ({"use_beam_search": True, "n": 2, "best_of": 17}, "best_of"),
    ({"use_beam_search": True, "n": 2, "stream": True}, "stream"),
    ({"use_beam_search": True, "n": 2, "stop": "x"}, "stop"),
    ({"use_beam_search": True, "n": 2, "temperature": 0.7}, "temperature"),
    ({"use_beam_search": True, "n": 2, "top_p": 0.7}, "top_p"),
    ({"use_beam_search": True, "n": 2, "logit_bias": {"1": 1}}, "logit_bias"),
    ({"use_beam_search": True, "n": 2, "repetition_penalty": 1.2}, "repetition_penalty"),
    (
        {"use_beam_search": True, "n": 2, "response_format": {"type": "json_object"}},
        "response_format",
    ),
    ({"use_beam_search": True, "n": 2, "early_stopping": "soon"}, "early_stopping"),
    ({"use_beam_search": True, "n": 2, "early_stopping": [1]}, "early_stopping"),
    ({"use_beam_search": True, "n": 2, "early_stopping": 1}, "early_stopping"),
    ({"use_beam_search": True, "n": 2, "length_penalty": 1e9}, "length_penalty"),
    ({"early_stopping": "zzz"}, "early_stopping"),
    ({"best_of": 2, "early_stopping": 1}, "early_stopping"),
    ({"best_of": 2, "stream": True}, "stream"),
    ({"best_of": 17}, "best_of"),
    ({"best_of": 0}, "best_of"),
    ({"best_of": 2, "n": 3}, "best_of"),
]


@PATHS
@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=str)
async def test_what_does_not_go_together_is_refused_by_name(
    front: Front, path: str, fields: dict[str, Any], param: str
) -> None:
    response = await posted(front, path, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert front.source.requests == []


async def test_tools_do_not_go_with_a_search(front: Front) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    response = await posted(front, "chat/completions", use_beam_search=True, n=2, tools=[tool])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tools")


async def test_answers_that_are_held_to_their_end_have_a_longest() -> None:
    async with running_front(says("Hello")) as front:
        many = {"logprobs": 20, "n": 16, "best_of": 16, "use_beam_search": True}
        most = MAX_SEARCH_LOGPROBS // (16 * 21)
        assert most < CONTEXT_TOKENS
        refused = await posted(front, "completions", max_tokens=most + 1, **many)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "max_tokens"
        fields = {"use_beam_search": True, "n": 16, "max_tokens": None, "logprobs": True}
        await posted(front, "chat/completions", top_logprobs=20, **fields)
        assert front.source.requests[-1].sampling.max_tokens == most
        held = MAX_HELD_LOGPROBS // (16 * 21)
        asked = {"best_of": 16, "max_tokens": held + 1, "logprobs": 20}
        assert (await posted(front, "completions", **asked)).status_code == 400


def grpc_request(**sampling: Any) -> inference_pb2.GenerateRequest:
    params = generation_pb2.SamplingParams(**({"max_tokens": 4} | sampling))
    return inference_pb2.GenerateRequest(text="Hi", sampling=params)


async def test_best_of_over_grpc() -> None:
    async with running_grpc(unequal_answers("poor", "good", "best")) as front:
        texts, usage = {}, None
        async for message in front.stub.Generate(grpc_request(best_of=3, n=2)):
            if message.HasField("chunk"):
                chunk = message.chunk
                texts[chunk.choice] = texts.get(chunk.choice, "") + chunk.text
                assert not any(token.HasField("logprob") for token in chunk.tokens)
            elif message.HasField("complete"):
                usage = message.complete.usage
        assert texts == {0: "best", 1: "good"}
        assert usage is not None
        assert usage.completion_tokens == 12


async def test_a_search_over_grpc() -> None:
    async with running_grpc(says("Hello")) as front:
        beams = generation_pb2.BeamSearch(width=3, length_penalty=0.0)
        async for _ in front.stub.Generate(grpc_request(beams=beams, n=2)):
            pass
        [request] = front.source.requests
        assert request.sampling.beams == BeamSearch(width=3, length_penalty=0.0)


@pytest.mark.parametrize(
    "sampling",
    [
        {"beams": generation_pb2.BeamSearch(width=1)},
        {"beams": generation_pb2.BeamSearch(width=17)},
        {"beams": generation_pb2.BeamSearch(width=2), "n": 3},
        {"beams": generation_pb2.BeamSearch(width=2), "best_of": 3},
        {"beams": generation_pb2.BeamSearch(width=2), "stop": ["x"]},
        {"beams": generation_pb2.BeamSearch(width=2), "top_k": 3},
        {"beams": generation_pb2.BeamSearch(width=2, early_stopping=9)},  # type: ignore[arg-type]
        {"beams": generation_pb2.BeamSearch(width=2, length_penalty=float("nan"))},
        {"best_of": 17},
        {"best_of": 2, "n": 3},
        {"best_of": 0},
    ],
    ids=str,
)
async def test_what_does_not_go_together_is_refused_over_grpc(sampling: dict[str, Any]) -> None:
    async with running_grpc(says("Hello")) as front:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in front.stub.Generate(grpc_request(**sampling)):
                pass
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert front.source.requests == []
