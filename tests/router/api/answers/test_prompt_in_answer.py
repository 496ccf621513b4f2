"""A prompt told back: as an echo with logprobs, as vLLM's prompt_logprobs, and with no answer."""

import asyncio

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from cluster.generation import PromptToken
from cluster.process.background import cancel
from cluster.wire import prompt_token_from_wire
from router.front.events import SLICE_ALTERNATIVES, ScoredPrompt
from router.grpc_front.event_messages import responses_of
from tests.router.front_fakes import MODEL, Front, running_front, scores_and_says

TOP = [{"A": -1 / 16, "h": -1 / 8}, {"A": -1 / 8, "e": -1 / 4}, {"A": -3 / 16, "r": -3 / 8}]
"""Of `here` after its first token: the likeliest, and the token itself, which is not."""


@pytest.fixture
async def front():
    async with running_front(scores_and_says("you")) as running:
        yield running


@pytest.fixture
async def client(front: Front):
    async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


async def post(front: Front, path: str, body: dict[str, object]) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.post(f"{front.url}{path}", json=body)


async def test_an_echo_with_logprobs_tells_the_prompt_and_the_answer_in_one(client):
    answer = await client.completions.create(
        model=MODEL, prompt="hére", echo=True, logprobs=1, max_tokens=2
    )
    (choice,) = answer.choices
    told = choice.logprobs
    assert choice.text == "hére" + "yo"
    assert told.token_logprobs == [None, -1 / 8, -2 / 8, -3 / 8, -4 / 8, -0.5, -0.5]
    assert told.tokens == ["h", "\ufffd", "\ufffd", "r", "e", "y", "o"]
    assert told.text_offset == [0, 1, 1, 2, 3, 4, 5]
    assert told.top_logprobs[0] is None
    assert told.top_logprobs[3] == {"A": -3 / 16, "r": -3 / 8}
    assert told.top_logprobs[5] == {"A": -0.5, "y": -0.5}


async def test_loglikelihoods_are_asked_and_read_as_lm_eval_does_it(front):
    """The body of lm-eval's `local-completions`, and its `parse_logprobs`, for two documents."""
    documents = [([72, 105, 32, 116, 104], 3), ([79, 110, 101], 1)]  # (context + continuation, n)
    body = {
        "model": MODEL,
        "prompt": [tokens for tokens, _ in documents],
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    answer = (await post(front, "/v1/completions", body)).json()
    for choice, (tokens, num_context) in zip(answer["choices"], documents, strict=True):
        told = choice["logprobs"]
        continuation = told["token_logprobs"][num_context:-1]
        assert continuation == [-i / 8 for i in range(num_context, len(tokens))]
        for logprob, top in zip(continuation, told["top_logprobs"][num_context:-1], strict=True):
            assert logprob in top.values()
            assert logprob != max(top.values())  # rank 2: not what greedy would say
    assert [request.sampling.prompt_logprobs for request in front.source.requests] == [1, 1]


async def test_the_prompt_alone_is_told_with_max_tokens_0(client, front):
    answer = await client.completions.create(
        model=MODEL, prompt="here", echo=True, logprobs=1, max_tokens=0
    )
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == ("here", "length")
    assert choice.logprobs.tokens == list("here")
    assert choice.logprobs.token_logprobs == [None, -1 / 8, -2 / 8, -3 / 8]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 0)
    assert front.source.requests[0].sampling.max_tokens == 1


async def test_a_streamed_echo_brings_the_prompts_logprobs_with_its_first_chunk(client):
    stream = await client.completions.create(
        model=MODEL, prompt="here", echo=True, logprobs=0, max_tokens=2, stream=True
    )
    first, second, *_ = [chunk.choices[0] async for chunk in stream]
    assert first.text == "herey"
    assert first.logprobs.token_logprobs == [None, -1 / 8, -2 / 8, -3 / 8, -0.5]
    assert first.logprobs.top_logprobs[1] == {"e": -1 / 8}
    assert second.logprobs.text_offset == [5]


async def test_prompt_logprobs_have_vllms_shape_on_both_endpoints(front):
    body = {"model": MODEL, "prompt": "her", "prompt_logprobs": 1, "max_tokens": 1}
    answer = (await post(front, "/v1/completions", body)).json()
    told = answer["choices"][0]["prompt_logprobs"]
    assert told == [
        None,
        {
            "65": {"logprob": -1 / 16, "rank": 1, "decoded_token": "A"},
            "101": {"logprob": -1 / 8, "rank": 2, "decoded_token": "e"},
        },
        {
            "65": {"logprob": -1 / 8, "rank": 1, "decoded_token": "A"},
            "114": {"logprob": -2 / 8, "rank": 2, "decoded_token": "r"},
        },
    ]
    messages = [{"role": "user", "content": "a"}]
    chat = {"model": MODEL, "messages": messages, "prompt_logprobs": 0, "max_tokens": 0}
    answer = (await post(front, "/v1/chat/completions", chat)).json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"] == len("user:a\n")
    assert "prompt_logprobs" not in answer["choices"][0]
    assert answer["choices"][0]["message"]["content"] == ""


async def test_an_answer_holds_only_so_many_logprobs_of_a_prompt(client):
    with pytest.raises(BadRequestError, match="allowed: 65536") as refused:
        await client.completions.create(
            model=MODEL, prompt="x" * 400, n=16, max_tokens=0, extra_body={"prompt_logprobs": 20}
        )
    assert refused.value.param == "prompt_logprobs"


async def test_a_token_that_was_not_among_the_likeliest_is_told_beside_them(client):
    answer = await client.completions.create(model=MODEL, prompt="x", logprobs=2, max_tokens=1)
    assert answer.choices[0].logprobs.top_logprobs == [{"A": -0.5, "B": -1.5, "y": -0.5}]
    answer = await client.completions.create(model=MODEL, prompt="x", logprobs=0, max_tokens=1)
    assert answer.choices[0].logprobs.top_logprobs == [{"y": -0.5}]


async def test_the_logprobs_of_all_prompts_of_one_request_count_together(front):
    """Each of them alone is within what one answer may hold."""
    body = {"model": MODEL, "prompt": ["x" * 400] * 8, "prompt_logprobs": 20, "max_tokens": 0}
    refused = await post(front, "/v1/completions", body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "prompt_logprobs"
    assert front.source.requests == []


async def test_a_long_scored_prompt_is_put_into_a_message_in_several_turns_of_the_loop():
    scores = [PromptToken(i, -1.0, 3, ((1, -2.0), (2, -3.0))) for i in range(4000)]
    event = ScoredPrompt([0, *range(4000)], scores)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    told = [response async for response in responses_of(event, "r")]
    await cancel([counting])
    assert [prompt_token_from_wire(token) for token in told[0].prompt.tokens] == scores
    assert turns >= 4000 * 3 // SLICE_ALTERNATIVES
