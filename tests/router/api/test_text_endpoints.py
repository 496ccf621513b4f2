"""/tokenize and /detokenize in vLLM's shapes, with the limits of every other body."""

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from cluster.models.text.template_sandbox import GLOBAL_NAMES
from cluster.process.background import cancel
from cluster.process.lifespan import ProcessState
from router.api.reading.tokenize_reader import SLICE_TOKENS, TokenizeReader
from router.front import text_work
from router.front.generation_request import TokenPrompt
from router.front.text_work import LARGE_BODY_BYTES, Door, ReadBody
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import CONTEXT_TOKENS, Front, byte_model

CHAT = [{"role": "user", "content": "Hi"}]


async def post(front: Front, path: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}{path}", json=body)


async def test_a_text_becomes_ids_and_ids_become_the_text(front):
    answer = (await post(front, "/tokenize", {"prompt": "Hi é"})).json()
    assert answer == {
        "count": 5,
        "max_model_len": CONTEXT_TOKENS,
        "tokens": [72, 105, 32, 195, 169],
        "token_strs": None,
    }
    answer = (await post(front, "/detokenize", {"tokens": answer["tokens"]})).json()
    assert answer == {"prompt": "Hi é"}
    assert front.source.requests == []


async def test_tokens_are_named_where_that_is_asked_for(front):
    answer = await post(front, "/tokenize", {"prompt": "Hi", "return_token_strs": True})
    assert answer.json()["token_strs"] == ["H", "i"]


async def test_a_chat_is_counted_as_it_would_be_rendered(front):
    answer = await post(front, "/tokenize", {"messages": CHAT})
    assert bytes(answer.json()["tokens"]) == b"user:Hi\n"
    closed = {"messages": CHAT, "add_generation_prompt": False}
    assert bytes((await post(front, "/tokenize", closed)).json()["tokens"]) == b"user:Hi\n|"


@pytest.mark.parametrize("ending", [0, LARGE_BODY_BYTES])
async def test_a_body_of_any_size_gets_the_same_answer(front, ending):
    body = {"prompt": "Hi", "return_token_strs": False, "model": None, "add_special_tokens": True}
    padded = httpx.Response(200, json=body).content + b" " * ending
    async with httpx.AsyncClient() as client:
        headers = {"content-type": "application/json"}
        answer = await client.post(f"{front.url}/tokenize", content=padded, headers=headers)
    assert answer.json()["tokens"] == [72, 105]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "other": 1}, "other"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": CHAT, "tools": [{}]}, "tools[0].type"),
        ("/tokenize", {"prompt": "x" * 600}, "prompt"),
        ("/tokenize", {"prompt": "x", "model": "other"}, "model"),
        ("/detokenize", {"tokens": [1] * 600}, "prompt"),
        ("/detokenize", {"tokens": [300]}, "prompt"),
        ("/detokenize", {"tokens": [-1]}, "prompt"),
    ],
)
async def test_what_is_wrong_is_named(front, path, body, param):
    answer = await post(front, path, body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


async def test_liveness_does_not_ask_for_workers_and_readiness_does(front):
    async with httpx.AsyncClient(base_url=front.url) as client:
        for path in ("/live", "/health", "/ping"):
            assert (await client.get(path)).status_code == 200
            answer = await client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
        front.readiness.reason = "no decode worker"
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/health")).status_code == 503
        assert (await client.head("/ping")).status_code == 503
        front.in_flight.advance(ProcessState.DRAINING)
        assert (await client.get("/live")).status_code == 200


async def test_what_a_template_may_ask_for_reaches_it(front):
    kwargs = {"enable_thinking": False}
    body = {"messages": CHAT, "chat_template_kwargs": kwargs, "max_tokens": 1}
    assert (await post(front, "/v1/chat/completions", body)).status_code == 200
    (asked,) = front.source.requests
    assert bytes(asked.token_ids) == b"enable_thinking=False\nuser:Hi\n"
    refused = {"messages": CHAT, "chat_template_kwargs": {"messages": []}}
    answer = await post(front, "/v1/chat/completions", refused)
    assert answer.json()["error"]["param"] == "chat_template_kwargs"


@pytest.mark.parametrize("name", sorted(GLOBAL_NAMES))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_what_every_template_is_given_cannot_be_replaced_by_a_client(front, path, name):
    body = {"messages": CHAT, "chat_template_kwargs": {"x": 1, name: "mine"}}
    answer = await post(front, path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "chat_template_kwargs"
    assert name in answer.json()["error"]["message"]
    assert front.source.requests == []


async def test_the_assistants_last_message_is_continued_and_not_closed(front):
    opened = [*CHAT, {"role": "assistant", "content": "Well, "}]
    body = {"messages": opened, "continue_final_message": True, "max_tokens": 1}
    assert (await post(front, "/v1/chat/completions", body)).status_code == 200
    (asked,) = front.source.requests
    assert bytes(asked.token_ids) == b"user:Hi\nassistant:Well, "
    for wrong in ({**body, "add_generation_prompt": True}, {**body, "messages": CHAT}):
        answer = await post(front, "/v1/chat/completions", wrong)
        assert answer.json()["error"]["param"] == "continue_final_message"


async def test_the_id_in_a_body_is_the_requests_own(front):
    answer = (await post(front, "/v1/completions", {"prompt": "x"})).json()
    assert answer["id"] == f"cmpl-{front.source.requests[0].request_id}"


async def test_the_names_of_many_tokens_are_told_in_several_turns_of_the_loop() -> None:
    reader = TokenizeReader(byte_model())
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    asked = b'{"prompt": "", "return_token_strs": true}'
    answer = await reader.answer(asked, [TokenPrompt([72] * 4096)])
    await cancel([counting])
    assert msgspec.json.decode(answer)["token_strs"] == ["H"] * 4096
    assert turns >= 4096 // SLICE_TOKENS


@pytest.fixture
def read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[Door]:
    """Doors of the bodies that were given to a text worker; an id more than two is many."""
    monkeypatch.setattr(text_work, "MAX_DECODED_HERE", 2)
    doors: list[Door] = []
    read = InProcessText.read

    async def noted(self: InProcessText, door: Door, *rest: Any) -> ReadBody:
        doors.append(door)
        return await read(self, door, *rest)

    monkeypatch.setattr(InProcessText, "read", noted)
    return doors


async def test_many_ids_are_decoded_by_a_text_worker(front, read_elsewhere):
    few = await post(front, "/detokenize", {"tokens": [72, 105]})
    assert (few.json(), read_elsewhere) == ({"prompt": "Hi"}, [])
    many = await post(front, "/detokenize", {"tokens": [72, 105, 33]})
    assert (many.json(), read_elsewhere) == ({"prompt": "Hi!"}, [Door.DETOKENIZE])
    await post(front, "/tokenize", {"prompt": "Hello there"})
    assert read_elsewhere == [Door.DETOKENIZE]


async def test_an_echo_of_many_ids_is_read_by_a_text_worker(front, read_elsewhere):
    for tokens, echo, elsewhere in (
        ([72, 105, 33], False, []),
        ([72, 105], True, []),
        ([72, 105, 33], True, [Door.COMPLETION]),
    ):
        answer = await post(front, "/v1/completions", {"prompt": tokens, "echo": echo})
        text = answer.json()["choices"][0]["text"]
        assert text.startswith(bytes(tokens).decode()) is echo
        assert read_elsewhere == elsewhere
