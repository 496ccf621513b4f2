"""OpenAI's own client against the front, over a real port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI

from cluster.errors import InternalError, NoWorker, OutOfBlocks, QueueFull, WorkerLost
from cluster.generation import FinishReason, Timing, Usage
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest, StreamEvent
from tests.router.front_fakes import (
    CONTEXT_TOKENS,
    MODEL,
    Front,
    fails,
    running_front,
    says,
    talks_forever,
    tokens_of,
    until,
)

ASK = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def client(front: Front) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(front) as opened:
        yield opened


def client_of(front: Front) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)


async def test_a_chat_answers_with_text_reason_and_usage(front: Front, client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=ASK)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens == len("user:Hi\n")
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == 20
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint == "fp_test"
    assert answer.object == "chat.completion" and answer.created > 1_700_000_000
    assert bytes(front.source.requests[0].token_ids) == b"user:Hi\n"


async def test_a_streamed_chat_gives_the_same_text_then_usage(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
    assert text == "Hello world"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert len({c.id for c in chunks}) == 1


async def test_three_choices_keep_their_indices(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=ASK, n=3)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert {c.message.content for c in answer.choices} == {"Hello world"}
    assert answer.usage is not None and answer.usage.completion_tokens == 36
    stream = await client.completions.create(model=MODEL, prompt="Hi", n=3, stream=True)
    texts = ["", "", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello world"] * 3


async def test_chat_logprobs_have_tokens_bytes_and_alternatives(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASK, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(item.token for item in logprobs.content) == "Hello world"
    assert logprobs.content[0].bytes == [72]
    assert [top.token for top in logprobs.content[0].top_logprobs] == ["A", "B"]


async def test_streamed_logprobs_add_up_to_the_shown_text(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=ASK, logprobs=True, stop=["wor"], stream=True
    )
    tokens = ""
    async for chunk in stream:
        logprobs = chunk.choices[0].logprobs
        assert logprobs is not None
        tokens += "".join(item.token for item in logprobs.content or [])
    assert tokens == "Hello "


async def test_completion_logprobs_have_offsets(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="Hi", logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == list("Hello world")
    assert logprobs.text_offset == list(range(11))
    assert logprobs.token_logprobs == [-0.5] * 11
    assert logprobs.top_logprobs is not None and logprobs.top_logprobs[0] == {
        "H": -0.5,
        "A": -0.5,
        "B": -1.5,
    }


async def test_a_stop_string_ends_the_answer_and_the_generation() -> None:
    async with running_front(talks_forever("ab. ")) as front, client_of(front) as client:
        answer = await client.completions.create(model=MODEL, prompt="Hi", stop=". a")
        assert answer.choices[0].text == "ab"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None and answer.usage.completion_tokens == 5
        details = answer.usage.prompt_tokens_details
        assert details is not None and details.cached_tokens == 3
        assert front.source.finished == [0]
        await until(lambda: front.source.num_closed == 1, "the generation is closed")


async def test_a_stream_that_a_stop_string_ends_closes_with_usage_and_timings() -> None:
    async with running_front(talks_forever("ab. ")) as front, client_of(front) as client:
        stream = await client.completions.create(
            model=MODEL,
            prompt="Hi",
            stop=". a",
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"x-splitserve-timings": "1"},
        )
        chunks = [chunk async for chunk in stream]
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    last = chunks[-1].model_dump()
    assert last["usage"]["completion_tokens"] == 5
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert (last["splitserve"]["ttft_ms"], last["splitserve"]["queue_ms"]) == (12.5, 2.0)


async def test_a_stop_string_counts_only_the_tokens_up_to_it(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="Hi", stop=["lo", "zzz"], n=2)
    assert [c.text for c in answer.choices] == ["Hel", "Hel"]
    assert answer.usage is not None and answer.usage.completion_tokens == 10


async def test_several_prompts_give_their_choices_in_order(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=["a", "bc"], n=2, echo=True)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert [c.text[:2] for c in answer.choices] == ["aH", "aH", "bc", "bc"]
    assert answer.usage is not None and answer.usage.prompt_tokens == 3
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 6


async def test_prompts_may_be_token_ids(front: Front, client: AsyncOpenAI) -> None:
    one = await client.completions.create(model=MODEL, prompt=[72, 105], echo=True, stream=True)
    assert "".join([c.choices[0].text async for c in one]) == "HiHello world"
    two = await client.completions.create(model=MODEL, prompt=[[72], [105, 33]])
    assert len(two.choices) == 2
    assert sorted(len(r.token_ids) for r in front.source.requests) == [1, 2, 2]


async def test_sampling_parameters_reach_the_dispatcher(front: Front, client: AsyncOpenAI) -> None:
    await client.chat.completions.create(
        model=MODEL,
        messages=ASK,
        temperature=0.5,
        top_p=0.9,
        seed=-1,
        max_completion_tokens=7,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        logit_bias={"65": 3},
        extra_body={
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [7],
            "cache_salt": "mine",
        },
    )
    request = front.source.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 2**64 - 1)
    assert (sampling.max_tokens, sampling.min_tokens, sampling.top_k) == (7, 2, 5)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.5)
    assert sampling.logit_bias == {65: 3.0} and sampling.stop_token_ids == (7,)
    assert sampling.ignore_eos
    assert request.tenant_salt == "0::mine"


async def test_max_tokens_of_a_chat_defaults_to_the_contexts_end_and_of_a_completion_to_16(
    front: Front, client: AsyncOpenAI
) -> None:
    await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    await client.completions.create(model=MODEL, prompt="Hi")
    await client.completions.create(model=MODEL, prompt="x" * (CONTEXT_TOKENS - 3))
    chat, short, long = front.source.requests
    assert chat.sampling.max_tokens == CONTEXT_TOKENS - len(chat.token_ids)
    assert (short.sampling.max_tokens, long.sampling.max_tokens) == (16, 3)


async def test_models_are_listed_and_found(client: AsyncOpenAI) -> None:
    assert [model.id async for model in await client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other/model")


async def test_an_unknown_model_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-9", messages=ASK)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


async def test_a_prompt_over_the_context_names_the_limit(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=str(CONTEXT_TOKENS)) as caught:
        await client.completions.create(model=MODEL, prompt="x" * 600)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="at most 510"):
        await client.completions.create(model=MODEL, prompt="Hi", max_tokens=511)


@pytest.mark.parametrize(
    ("error", "raised", "retry_header"),
    [
        (QueueFull("full", retry_after_s=0.1), openai.RateLimitError, ("retry-after", "1")),
        (NoWorker("no worker"), openai.InternalServerError, ("retry-after", "1")),
        (OutOfBlocks("too long"), openai.BadRequestError, ("x-should-retry", None)),
        (WorkerLost("lost"), openai.InternalServerError, ("x-should-retry", "false")),
        (InternalError("bug"), openai.InternalServerError, ("x-should-retry", "false")),
        (ZeroDivisionError("bug"), openai.InternalServerError, ("x-should-retry", "false")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_before_the_first_token_have_their_status(
    error: Exception,
    raised: type[openai.APIStatusError],
    retry_header: tuple[str, str | None],
    stream: bool,
) -> None:
    async with running_front(fails(error)) as front, client_of(front) as client:
        with pytest.raises(raised) as caught:
            await client.completions.create(model=MODEL, prompt="Hi", stream=stream)
        assert caught.value.response.headers.get(retry_header[0]) == retry_header[1]
        assert "ZeroDivision" not in caught.value.message


async def test_an_error_in_mid_stream_is_told_and_then_done() -> None:
    script = fails(WorkerLost("it died"), after="Hel")
    async with running_front(script) as front, client_of(front) as client:
        stream = await client.completions.create(model=MODEL, prompt="Hi", stream=True)
        text = ""
        with pytest.raises(openai.APIError, match="it died"):
            async for chunk in stream:
                text += chunk.choices[0].text
        assert text == "Hel"


async def test_the_client_retries_a_full_queue_by_itself() -> None:
    async with running_front(fails(QueueFull("full", retry_after_s=0.01))) as front:
        async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="k", max_retries=2) as client:
            with pytest.raises(openai.RateLimitError):
                await client.completions.create(model=MODEL, prompt="Hi")
        assert len(front.source.requests) == 3


async def test_the_client_does_not_repeat_what_was_begun() -> None:
    async with running_front(fails(WorkerLost("lost"))) as front:
        async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="k", max_retries=2) as client:
            with pytest.raises(openai.InternalServerError):
                await client.completions.create(model=MODEL, prompt="Hi")
        assert len(front.source.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_timings_come_with_the_answer_when_asked_for(stream: bool) -> None:
    async with running_front(says("ok")) as front, client_of(front) as client:
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, stream=stream, extra_body={"timings": True}
        )
        last = [chunk async for chunk in answer][-1] if stream else answer
        timing = (last.model_extra or {})["splitserve"]
        assert timing["ttft_ms"] == 12.5 and timing["decode_worker"] == "d0"


async def drafted(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
    """A Script: an answer of eight tokens, seven of them by steps with drafts."""
    yield ChoiceTokens(0, tokens_of(request, b"answered"), FinishReason.LENGTH)
    timing = Timing(
        draft_tokens=5,
        accepted_draft_tokens=3,
        draft_tokens_by_position=(3, 2),
        accepted_draft_tokens_by_position=(2, 1),
        draft_steps=4,
        draft_step_tokens=7,
        draft_gain=1.5,
    )
    yield Completed(Usage(len(request.token_ids), 8, 0), timing)


@pytest.mark.parametrize("stream", [False, True])
async def test_timings_say_what_drafts_gave_the_request_by_position_and_in_all(
    stream: bool,
) -> None:
    async with running_front(drafted) as front, client_of(front) as client:
        answer = await client.completions.create(
            model=MODEL, prompt="Hi", stream=stream, extra_body={"timings": True}
        )
        last = [chunk async for chunk in answer][-1] if stream else answer
    timing = (last.model_extra or {})["splitserve"]
    assert {name: value for name, value in timing.items() if "draft" in name} == {
        "draft_tokens": 5,
        "accepted_draft_tokens": 3,
        "draft_tokens_by_position": [3, 2],
        "accepted_draft_tokens_by_position": [2, 1],
        "draft_steps": 4,
        "draft_step_tokens": 7,
        "draft_gain": 1.5,
    }


async def test_usage_can_come_with_every_chunk(client: AsyncOpenAI) -> None:
    stream = await client.completions.create(
        model=MODEL,
        prompt="Hi",
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore[typeddict-unknown-key]
    )
    counts = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert counts == [*range(1, 12), 12, 12]


async def test_content_may_be_a_list_of_text_parts(front: Front, client: AsyncOpenAI) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await client.chat.completions.create(
        model=MODEL, messages=[{"role": "developer", "content": parts}]
    )
    assert bytes(front.source.requests[0].token_ids) == b"system:a\nb\n"


async def test_a_header_asks_for_timings_too(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model=MODEL, prompt="Hi", extra_headers={"x-splitserve-timings": "1"}
    )
    assert (answer.model_extra or {})["splitserve"]["queue_ms"] == 2.0
    plain = await client.completions.create(model=MODEL, prompt="Hi")
    assert "splitserve" not in (plain.model_extra or {})
