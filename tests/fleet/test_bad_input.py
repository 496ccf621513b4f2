"""Whatever a client sends, it gets a 4xx in OpenAI's shape and disturbs nobody."""

import asyncio
import json

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

HOSTILE = {
    "broken json": b'{"model": "smollm2", "prompt": "x"',
    "deep nesting": b"[" * 100_000,
    "nested in a field": b'{"model":"smollm2","prompt":"x","logit_bias":' + b'{"a":' * 50_000,
    "wrong type": b'{"model": "smollm2", "prompt": {"a": 1}}',
    "number for text": b'{"model": 7, "prompt": "x"}',
    "NaN": b'{"model": "smollm2", "prompt": "x", "temperature": NaN}',
    "infinity": b'{"model": "smollm2", "prompt": "x", "temperature": 1e999}',
    "negative max_tokens": b'{"model": "smollm2", "prompt": "x", "max_tokens": -1}',
    "zero max_tokens": b'{"model": "smollm2", "prompt": "x", "max_tokens": 0}',
    "huge max_tokens": b'{"model": "smollm2", "prompt": "x", "max_tokens": 1000000000000}',
    "huge n": b'{"model": "smollm2", "prompt": "x", "n": 1000}',
    "empty prompt": b'{"model": "smollm2", "prompt": ""}',
    "empty token list": b'{"model": "smollm2", "prompt": []}',
    "token out of range": b'{"model": "smollm2", "prompt": [1, 99999999]}',
    "negative token": b'{"model": "smollm2", "prompt": [-4]}',
    "lone surrogate": b'{"model": "smollm2", "prompt": "\\ud800"}',
    "not utf-8": b'{"model": "smollm2", "prompt": "\xff\xfe"}',
    "unknown parameter": b'{"model": "smollm2", "prompt": "x", "temprature": 1}',
    "a stop of the wrong kind": b'{"model": "smollm2", "prompt": "x", "stop": [1, 2]}',
    "an empty stop": b'{"model": "smollm2", "prompt": "x", "stop": ""}',
    "a bias out of range": b'{"model": "smollm2", "prompt": "x", "logit_bias": {"1": 1e9}}',
    "a bias on no token": b'{"model": "smollm2", "prompt": "x", "logit_bias": {"zebra": 1}}',
    "tools": b'{"model": "smollm2", "messages": [], "tools": [{}]}',
    "no body": b"",
    "null": b"null",
    "a list": b"[]",
}


def pids(fleet):
    return sorted(process.pid for process in fleet.processes())


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_body_gets_a_4xx_in_openai_s_shape(pair_fleet, kind):
    reply = httpx.post(
        f"{pair_fleet.url}/v1/completions",
        content=HOSTILE[kind],
        headers={"Content-Type": "application/json"},
        timeout=60,
    )
    assert 400 <= reply.status_code < 500, reply.text
    error = reply.json()["error"]
    assert error["message"] and error["type"] and error["code"]
    assert reply.headers["x-request-id"]


def test_an_unknown_parameter_is_named(pair_fleet):
    reply = httpx.post(
        f"{pair_fleet.url}/v1/completions",
        json={"model": "smollm2", "prompt": "x", "temprature": 1},
        timeout=60,
    )
    assert "temprature" in reply.json()["error"]["message"]


def test_ten_megabytes_are_refused_before_they_are_read(pair_fleet):
    reply = httpx.post(
        f"{pair_fleet.url}/v1/completions",
        content=b'"' + b"x" * 10_000_000 + b'"',
        headers={"Content-Type": "application/json"},
        timeout=60,
    )
    assert reply.status_code == 413
    assert reply.json()["error"]["code"] == "request_too_large"


async def test_others_are_undisturbed_and_no_process_is_replaced(pair_fleet, reference):
    before = pids(pair_fleet)
    request = {
        "model": "smollm2", "prompt": reference.prompts[1], "temperature": 0,
        "max_tokens": 16, "ignore_eos": True,
    }  # fmt: skip
    async with httpx.AsyncClient(base_url=pair_fleet.url, timeout=60) as client:
        bodies = [content for content in HOSTILE.values() for _ in range(3)]
        good = [asyncio.create_task(client.post("/v1/completions", json=request)) for _ in range(4)]
        bad = await asyncio.gather(*(client.post("/v1/completions", content=b) for b in bodies))
        answers = [await task for task in good]
    assert all(400 <= reply.status_code < 500 for reply in bad)
    expected = reference.tokenizer.decode(reference.answers[1], skip_special_tokens=True)
    assert [json.loads(a.content)["choices"][0]["text"] for a in answers] == [expected] * 4
    assert pids(pair_fleet) == before
