"""Fields that nobody here knows: refused, or left out and told about."""

import json

import httpx
import pytest
from structlog.testing import capture_logs

from router.api.ignored_fields import (
    IGNORED_HEADER,
    MAX_HEADER_CHARS,
    MAX_LOGGED_NAMES,
    IgnoredFields,
)
from router.api.reading.schema import ChatRequest
from router.api.reading.unknown_fields import MAX_NAMES, without_unknown
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.front_fakes import Front, running_front

HEADER = IGNORED_HEADER.decode()
MESSAGE = {"role": "user", "content": "Hi", "weight": 3}
CHAT = {"messages": [MESSAGE, MESSAGE], "min_tokens": 1, "zeta": {"a": [1]}}
BODIES = {
    "/v1/chat/completions": (CHAT, "zeta, messages[].weight"),
    "/v1/completions": ({"prompt": "Hi", "zeta": 1}, "zeta"),
    "/tokenize": ({"prompt": "Hi", "zeta": 1}, "zeta"),
    "/detokenize": ({"tokens": [72], "zeta": 1}, "zeta"),
}


async def post(front: Front, path: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}{path}", json=body)


@pytest.mark.parametrize("path", BODIES)
async def test_an_unknown_field_is_refused_by_name_unless_it_may_be_left_out(front, path):
    answer = await post(front, path, BODIES[path][0])
    assert answer.status_code == 400 and "Unrecognized" in answer.json()["error"]["message"]
    assert HEADER not in answer.headers


@pytest.mark.parametrize("path", BODIES)
async def test_what_is_left_out_is_named_in_a_header_and_the_rest_is_honoured(path):
    body, names = BODIES[path]
    async with running_front(ignores_unknown=True) as front:
        answer = await post(front, path, body)
        assert (answer.status_code, answer.headers[HEADER]) == (200, names)
        if path == "/v1/chat/completions":
            assert front.source.requests[0].sampling.min_tokens == 1


async def test_a_stream_names_them_too_and_a_known_body_names_nothing():
    async with running_front(ignores_unknown=True) as front:
        answer = await post(front, "/v1/completions", {"prompt": "x", "zeta": 1, "stream": True})
        assert answer.headers[HEADER] == "zeta" and answer.text.endswith("[DONE]\n\n")
        assert HEADER not in (await post(front, "/v1/completions", {"prompt": "x"})).headers


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
async def test_a_large_body_is_read_the_same_way(path):
    body = {"prompt": "x", "zeta": "z" * LARGE_BODY_BYTES}
    async with running_front(ignores_unknown=True) as front:
        answer = await post(front, path, body)
    assert (answer.status_code, answer.headers[HEADER]) == (200, "zeta")


async def test_what_is_known_and_cannot_be_honoured_is_still_refused():
    async with running_front(ignores_unknown=True) as front:
        answer = await post(front, "/v1/completions", {"prompt": "x", "zeta": 1, "suffix": "no"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "suffix")


def test_what_is_known_stays_byte_for_byte():
    body = b'{"seed": 1e400, "x": 1, "stream_options": {"y": [1], "include_usage": 12345678901}}'
    known, names = without_unknown(body, ChatRequest)
    assert known == b'{"seed":1e400,"stream_options":{"include_usage":12345678901}}'
    assert names == ("x", "stream_options.y")


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"a":', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_left_to_the_decoder(body):
    assert without_unknown(body, ChatRequest) == (body, ())


@pytest.mark.parametrize("messages", [7, "text", [1], [{"role": "user"}, 2], {"a": 1}, None])
def test_a_part_that_is_no_object_stays_as_it_is(messages):
    body = json.dumps({"messages": messages, "x": 1}).encode()
    known, names = without_unknown(body, ChatRequest)
    assert (json.loads(known), names) == ({"messages": messages}, ("x",))


def test_names_are_few_short_and_plain():
    body = json.dumps({f"é\r\n{i}" + "n" * 500: i for i in range(1000)}).encode()
    _, names = without_unknown(body, ChatRequest)
    assert len(names) <= MAX_NAMES
    assert all(name.isascii() and name.isprintable() and len(name) <= 64 for name in names)


def test_the_log_hears_of_each_name_once_and_not_of_more_than_it_may():
    ignored = IgnoredFields()
    with capture_logs() as lines:
        ignored.tell(["a", "b"])
        ignored.tell(["b", "c"])
        assert [line["fields"] for line in lines] == [["a", "b"], ["c"]]
        for number in range(2 * MAX_LOGGED_NAMES):
            ignored.tell([f"x{number}"])
    told = [name for line in lines for name in line.get("fields", [])]
    assert len(told) == len(set(told)) == MAX_LOGGED_NAMES == len(ignored._logged)


def test_the_header_is_bounded_and_ends_between_two_names():
    ((name, told),) = IgnoredFields().tell(["n" * 64 + str(i) for i in range(MAX_NAMES)])
    assert name == IGNORED_HEADER and len(told) <= MAX_HEADER_CHARS
    assert told.endswith(b", ...") and told.count(b",") == 7
