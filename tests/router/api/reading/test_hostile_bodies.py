"""Bodies that no client should send: each gets its 4xx, and the front lives on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from cluster.process.lifespan import ProcessState
from tests.router.front_fakes import MODEL, Front, running_front

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
JSON = {"content-type": "application/json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_front() -> AsyncIterator[Front]:
    """One front for the whole file: what a body does to it, the next test would see."""
    async with running_front() as running:
        yield running


@pytest.fixture
def front(shared_front: Front) -> Front:
    shared_front.source.requests.clear()
    return shared_front


@pytest_asyncio.fixture(loop_scope="module")
async def http(front: Front) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=front.url) as client:
        yield client
        alive = await client.post(COMPLETION, json={"model": MODEL, "prompt": "Hi"})
        assert alive.status_code == 200


def assert_error(
    response: httpx.Response, status: int, code: str, *, param: str | None = None, says: str = ""
) -> None:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["param"] == param
    assert says in error["message"]
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'{"prompt": "a"} trailing', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"prompt": "\xff\xfe"}', "UTF-8"),
        (b'{"\xff": 1}', "UTF-8"),
        (b'{"prompt": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"prompt": "\\ud800"}', "not valid JSON"),
        (b'{"prompt": "a\\udc00b"}', "not valid JSON"),
        (b'{"prompt": "a", "temperature": NaN}', "not valid JSON"),
        (b'{"prompt": "a", "temperature": Infinity}', "not valid JSON"),
        (b'{"prompt": "a", "metadata": ' + b"[" * 50_000, "metadata"),
        (b'{"prompt": "a", "tools": ' + b"[" * 50_000, "nested too deeply"),
        (b'{"prompt": "a", "tools": ' + b'{"a":' * 30_000, "nested too deeply"),
    ],
    ids=range(16),
)
async def test_broken_bodies_are_refused(http: httpx.AsyncClient, body: bytes, says: str) -> None:
    response = await http.post(COMPLETION, content=body, headers=JSON)
    param = "metadata" if says == "metadata" else None
    assert_error(response, 400, "invalid_request", param=param, says=says)


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"foo": 1}, "foo", "Unrecognized request argument supplied: foo"),
        ({"temperature": "hot"}, "temperature", "float"),
        ({"temperature": -0.1}, "temperature", "[0.0, 2.0]"),
        ({"temperature": 2.1}, "temperature", "2.1"),
        ({"top_p": -0.1}, "top_p", "(0.0, 1.0]"),
        ({"top_k": -2}, "top_k", "-2"),
        ({"min_p": 1.5}, "min_p", "1.5"),
        ({"repetition_penalty": 0}, "repetition_penalty", "0"),
        ({"presence_penalty": 3}, "presence_penalty", "3"),
        ({"frequency_penalty": -3}, "frequency_penalty", "-3"),
        ({"n": 0}, "n", "[1, 16]"),
        ({"n": 17}, "n", "17"),
        ({"n": True}, "n", "bool"),
        ({"n": 1.5}, "n", "float"),
        ({"n": 10**40}, "n", "[1, 16]"),
        ({"max_tokens": 0}, "max_tokens", "0"),
        ({"max_tokens": -5}, "max_tokens", "-5"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "[0, 8]"),
        ({"seed": 2**64}, "seed", "64-bit"),
        ({"seed": -(2**63) - 1}, "seed", "64-bit"),
        ({"seed": 1.5}, "seed", "int"),
        ({"stop": ""}, "stop", "0 characters"),
        ({"stop": ["a", ""]}, "stop", "0 characters"),
        ({"stop": "x" * 257}, "stop", "257"),
        ({"stop": ["s"] * 17}, "stop", "17"),
        ({"stop": ["s"] * 30_000}, "stop", "30000"),
        ({"stop": [1]}, "stop[0]", "str"),
        ({"stop_token_ids": [300]}, "stop_token_ids", "[0, 299]"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "-1"),
        ({"stop_token_ids": list(range(65))}, "number of stop_token_ids", "65"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "int"),
        ({"logit_bias": {"300": 1}}, "logit_bias", "300"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "101"),
        ({"logit_bias": {str(i): 0 for i in range(1025)}}, "logit_bias", "1025"),
        ({"logprobs": 21}, "logprobs", "21"),
        ({"logprobs": True}, "logprobs", "bool"),
        ({"max_tokens": 0}, "max_tokens", "echo"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "0 to 20"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "stream"),
        ({"best_of": 17}, "best_of", "best_of is 17 and n is 1"),
        ({"best_of": 2, "stream": True}, "stream", "best_of"),
        ({"suffix": "x"}, "suffix", "not supported"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"tool_choice": "required"}, "tool_choice", "not supported"),
        ({"tools": [{}], "tool_choice": "auto"}, "tools", "not supported"),
        ({"functions": [{}]}, "functions", "not supported"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
        ({"response_format": {"type": "text", "x": 1}}, "response_format", "nothing beside it"),
        ({"response_format": "json"}, "response_format", "must have a type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "Unrecognized"),
        ({"cache_salt": "s" * 257}, "cache_salt", "257"),
        ({"cache_salt": 5}, "cache_salt", "str"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": ["a", ""]}, "prompt", "empty"),
        ({"prompt": [[]]}, "prompt", "empty"),
        ({"prompt": None}, "prompt", "null"),
        ({"prompt": 5}, "prompt", "int"),
        ({"prompt": {"a": 1}}, "prompt", "object"),
        ({"prompt": ["a", 1]}, "prompt", "mixes"),
        ({"prompt": [1, [2]]}, "prompt", "mixes"),
        ({"prompt": [300]}, "prompt", "0 to 299"),
        ({"prompt": [-1]}, "prompt", "-1"),
        ({"prompt": [10**30]}, "prompt", "0 to 299"),
        ({"prompt": ["a"] * 33}, "prompt", "33"),
        ({"prompt": ["a", "b"], "timings": True}, "timings", "one prompt"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_wrong_parameter_is_named_with_its_limit(
    http: httpx.AsyncClient, fields: dict[str, object], param: str, says: str
) -> None:
    body = json.dumps({"model": MODEL, "prompt": "Hi", **fields})
    response = await http.post(COMPLETION, content=body, headers=JSON)
    assert_error(response, 400, "invalid_request", param=param, says=says)


MOST_DIGITS = 4300
"""That a number in a body may have."""


@pytest.mark.parametrize("num_digits", [310, MOST_DIGITS])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 9}, "n"),
        ({"n": -9}, "n"),
        ({"n": 9, "logprobs": 20}, "n"),
        ({"n": 9, "max_tokens": 9, "logprobs": 20}, "logprobs"),
        ({"n": 9, "prompt_logprobs": 20}, "prompt_logprobs"),
        ({"max_tokens": 9}, "max_tokens"),
        ({"max_tokens": 9, "logprobs": 20}, "logprobs"),
        ({"min_tokens": 9}, "min_tokens"),
        ({"top_k": -9}, "top_k"),
        ({"seed": 9}, "seed"),
        ({"truncate_prompt_tokens": 9}, "truncate_prompt_tokens"),
        ({"best_of": 9}, "best_of"),
        ({"stop_token_ids": [9]}, "stop_token_ids"),
        ({"logit_bias": {"9": 1}}, "logit_bias"),
        ({"prompt": [9]}, "prompt"),
    ],
    ids=str,
)
async def test_a_number_larger_than_any_float_is_refused_like_any_other(
    http: httpx.AsyncClient, fields: dict[str, object], param: str, num_digits: int
) -> None:
    """Every 9 is so long."""
    given = json.dumps({"prompt": "Hi", **fields}).replace("9", "9" * num_digits)
    response = await http.post(COMPLETION, content=given, headers=JSON)
    code = "context_length_exceeded" if param == "max_tokens" else "invalid_request"
    assert_error(response, 400, code, param=param)


async def test_an_overflowing_number_is_refused(http: httpx.AsyncClient) -> None:
    body = b'{"prompt": "a", "temperature": 1e999}'
    response = await http.post(COMPLETION, content=body, headers=JSON)
    assert_error(response, 400, "invalid_request", param="temperature", says="out of range")


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"messages": []}, "messages", "empty"),
        ({"messages": None}, "messages", "null"),
        ({"messages": "hi"}, "messages", "array"),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "Missing"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role", "wizard"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id", "missing"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "int"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
            "image_url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "missing",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function",
            "Missing",
        ),
        ({"messages": [{"role": "user", "content": "a", "x": 1}]}, "messages[0].x", "x"),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, "messages", "template"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "21"),
        ({"logprobs": 3}, "logprobs", "bool"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens", "3"),
        ({"prompt": "x"}, "prompt", "Unrecognized"),
        ({"modalities": ["audio"]}, "modalities", "not supported"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_wrong_chat_is_refused_by_name(
    http: httpx.AsyncClient, fields: dict[str, object], param: str, says: str
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    response = await http.post(CHAT, json={"model": MODEL, "messages": messages, **fields})
    assert_error(response, 400, "invalid_request", param=param, says=says)


async def test_nulls_and_harmless_fields_are_accepted(http: httpx.AsyncClient) -> None:
    echoed = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None}
    body = {
        "messages": [{"role": "user", "content": "Hi", "name": "me"}, echoed],
        "stop": None,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "temperature": None,
        "logprobs": False,
        "stream": False,
        "stream_options": None,
        "max_tokens": 3,
        "max_completion_tokens": 3,
        "service_tier": "auto",
    }
    response = await http.post(CHAT, json=body)
    assert response.status_code == 200, response.text


async def test_of_a_duplicate_key_the_last_value_counts(
    front: Front, http: httpx.AsyncClient
) -> None:
    body = b'{"prompt": "first", "prompt": "last"}'
    assert (await http.post(COMPLETION, content=body, headers=JSON)).status_code == 200
    assert bytes(front.source.requests[0].token_ids) == b"last"


async def test_other_content_types_and_encodings_are_refused(http: httpx.AsyncClient) -> None:
    body = json.dumps({"prompt": "Hi"})
    for given in ({"content-type": "text/plain"}, {}, {**JSON, "content-encoding": "gzip"}):
        response = await http.post(COMPLETION, content=body, headers=given)
        assert_error(response, 400, "invalid_request", says="content-")


async def test_unknown_paths_and_methods_answer_in_openais_shape(http: httpx.AsyncClient) -> None:
    assert_error(await http.get("/v1/nothing"), 404, "unknown_path", says="/v1/nothing")
    assert_error(await http.get("//v1/models"), 404, "unknown_path")
    assert_error(await http.post("/v1/chat/completions/", json={}), 404, "unknown_path")
    assert_error(await http.get(CHAT), 405, "method_not_allowed", says="GET")
    assert_error(await http.delete("/v1/models"), 405, "method_not_allowed")


async def test_a_body_over_the_limit_is_refused_before_it_is_read(
    front: Front, http: httpx.AsyncClient
) -> None:
    response = await http.post(COMPLETION, content=b"x" * 10_000_000, headers=JSON)
    assert_error(response, 413, "request_too_large", says="200000")
    assert response.headers["connection"] == "close"
    assert front.source.requests == []


async def test_a_chunked_body_over_the_limit_is_refused(http: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(400):
            yield b"x" * 1000

    response = await http.post(COMPLETION, content=pieces(), headers=JSON)
    assert_error(response, 413, "request_too_large")


async def test_request_ids_are_echoed_when_plain_and_made_otherwise(
    front: Front, http: httpx.AsyncClient
) -> None:
    for asked, kept in (("abc-1", True), ("a b", False), ("x" * 129, False), ("é", False)):
        headers = {"x-request-id": asked.encode()}
        response = await http.post(COMPLETION, json={"prompt": "Hi"}, headers=headers)
        assert (response.headers["x-request-id"] == asked) is kept


async def test_equal_request_ids_of_two_clients_stay_two_requests(
    front: Front, http: httpx.AsyncClient
) -> None:
    for _ in range(2):
        await http.post(COMPLETION, json={"prompt": "Hi"}, headers={"x-request-id": "same"})
    first, second = (request.request_id for request in front.source.requests)
    assert first != second
    assert first.startswith("same-") and second.startswith("same-")


async def test_health_tells_the_truth(front: Front, http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).status_code == 200
    front.readiness.reason = "no decode worker is ready"
    response = await http.get("/health")
    assert_error(response, 503, "not_ready", says="no decode worker")
    assert response.headers["retry-after"] == "1"
    front.readiness.reason = None


async def test_version_and_metrics_answer(http: httpx.AsyncClient) -> None:
    assert (await http.get("/version")).json()["version"]
    assert (await http.get("/metrics")).headers["content-type"].startswith("text/plain")


async def test_a_draining_router_refuses_with_a_remedy() -> None:
    async with running_front() as front, httpx.AsyncClient(base_url=front.url) as client:
        front.in_flight.advance(ProcessState.DRAINING)
        response = await client.post(COMPLETION, json={"prompt": "Hi"})
        assert_error(response, 503, "draining")
        assert response.headers["retry-after"] == "1"
