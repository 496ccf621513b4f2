"""The openai package works with a real fleet as it does with any other server."""

import json
import math

import jsonschema
import openai
import pydantic
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(pair_fleet):
    with openai.OpenAI(base_url=f"{pair_fleet.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_it_answers_a_question(client):
    reply = client.chat.completions.create(
        model="smollm2", messages=QUESTION, temperature=0, max_tokens=20
    )
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.prompt_tokens == 37
    assert reply.usage.prompt_tokens_details.cached_tokens is not None


def test_a_stream_says_the_same_as_a_whole_answer_and_ends_with_usage(client):
    options = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 20}
    whole = client.chat.completions.create(**options)
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_three_choices_share_one_prompt_and_differ(client):
    reply = client.completions.create(
        model="smollm2", prompt="Once upon a time", n=3, seed=5, temperature=1.0, max_tokens=12
    )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({choice.text for choice in reply.choices}) == 3
    assert reply.usage.completion_tokens == 36


def test_a_seed_gives_the_same_text_twice_and_another_seed_another_text(client):
    def text(seed):
        reply = client.completions.create(
            model="smollm2", prompt="My favourite", seed=seed, temperature=1.0, max_tokens=16
        )
        return reply.choices[0].text

    assert text(11) == text(11)
    assert text(11) != text(12)


def test_a_stop_string_may_span_tokens(client):
    options = {"model": "smollm2", "prompt": "One two three four five", "temperature": 0}
    whole = client.completions.create(**options, max_tokens=24).choices[0].text
    stop = whole[9:14]
    assert len(stop) == 5
    reply = client.completions.create(**options, max_tokens=24, stop=[stop])
    assert reply.choices[0].text == whole[: whole.index(stop)]
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stop", [None, "five"], ids=["length", "stop string"])
def test_a_cached_prompt_and_the_parts_of_ttft_are_told_however_a_stream_ends(client, stop):
    prompt = "Count with me: one two three four five six. " * 6 + "One two three four"
    options = {"model": "smollm2", "prompt": prompt, "temperature": 0, "max_tokens": 24}
    options |= {"stop": stop, "logit_bias": {2: -100, 0: -100}}
    client.completions.create(**options)
    stream = client.completions.create(
        **options,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-splitserve-timings": "1"},
    )
    chunks = [chunk.model_dump() for chunk in stream]
    last, timing = chunks[-1], chunks[-1]["splitserve"]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks[:-1]]
    assert reasons[-1] == ("stop" if stop else "length")
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16
    assert last["usage"]["completion_tokens"] <= 24
    parts = [timing[f"{part}_ms"] for part in ("queue", "prefill", "kv", "decode")]
    assert min(parts) >= 0 and timing["ttft_ms"] > 0
    assert timing["ttft_ms"] == pytest.approx(sum(parts), abs=0.01)
    assert timing["decode_worker"].startswith("decode")


def test_logprobs_sum_to_the_reference_s(client, reference):
    prompt = "The weather today is"
    reply = client.completions.create(
        model="smollm2", prompt=prompt, temperature=0, max_tokens=8, logprobs=2
    )
    given = reply.choices[0].logprobs
    ids = reference.tokenizer(prompt)["input_ids"]
    answer = reference.greedy(ids, 8)
    expected = reference.logprobs(ids + answer, len(ids))
    assert math.isclose(sum(given.token_logprobs), sum(expected), abs_tol=2e-3)
    assert all(len(top) == 2 for top in given.top_logprobs)
    assert given.token_logprobs[0] == pytest.approx(max(given.top_logprobs[0].values()))


def test_a_penalty_stops_repetition(client):
    options = {"model": "smollm2", "prompt": "ha ha ha ha ha ha ha ha", "max_tokens": 16}
    free = client.completions.create(**options, temperature=0).choices[0].text
    held = client.completions.create(**options, temperature=0, frequency_penalty=2.0)
    assert free.count("ha") > held.choices[0].text.count("ha")


def test_a_logit_bias_forces_a_token(client, reference):
    token = reference.tokenizer(" blue")["input_ids"][0]
    reply = client.completions.create(
        model="smollm2", prompt="The sky is", max_tokens=3, temperature=0, logit_bias={token: 100}
    )
    assert reply.choices[0].text == " blue blue blue"


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["smollm2"]


def test_errors_are_the_client_s_own_classes(client):
    with pytest.raises(openai.NotFoundError, match="gpt-17"):
        client.chat.completions.create(model="gpt-17", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=9)
    with pytest.raises(openai.BadRequestError, match="2048"):
        client.completions.create(model="smollm2", prompt="word " * 3000)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "languages": {"type": "array", "items": {"enum": ["cs", "en", "de"]}, "maxItems": 3},
    },
    "required": ["name", "age", "languages"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_follows_the_schema_that_was_asked_for(client, temperature):
    named = {"name": "person", "strict": True, "schema": PERSON}
    options = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Describe Marie Curie as JSON."}],
        "response_format": {"type": "json_schema", "json_schema": named},
        "temperature": temperature,
        "seed": 3,
        "max_tokens": 300,
    }
    whole = client.chat.completions.create(**options).choices[0]
    assert whole.finish_reason == "stop"
    jsonschema.validate(json.loads(whole.message.content), PERSON)
    chunks = client.chat.completions.create(**options, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.message.content


def test_a_parsed_answer_is_of_the_class_that_was_given(client):
    class City(pydantic.BaseModel):
        name: str
        is_capital: bool

    reply = client.chat.completions.parse(
        model="smollm2",
        messages=[{"role": "user", "content": "Paris, as JSON."}],
        response_format=City,
        temperature=0,
        max_tokens=200,
    )
    assert isinstance(reply.choices[0].message.parsed, City)


def test_vllms_words_for_an_answer_work_as_extra_fields(client):
    reply = client.completions.create(
        model="smollm2",
        prompt="The sky is",
        temperature=0,
        max_tokens=20,
        extra_body={"structured_outputs": {"choice": ["blue", "made of cheese"]}},
    )
    assert reply.choices[0].text in ("blue", "made of cheese")
    assert reply.choices[0].finish_reason == "stop"


def test_a_grammar_that_cannot_be_followed_is_a_bad_request(client):
    with pytest.raises(openai.BadRequestError, match="look-ahead"):
        client.completions.create(
            model="smollm2",
            prompt="x",
            extra_body={"structured_outputs": {"regex": "(?=a)"}},
        )
