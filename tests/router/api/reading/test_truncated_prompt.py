"""`truncate_prompt_tokens`: only the last tokens of a prompt, as vLLM has it."""

import httpx
import pytest

from router.front.text_work import LARGE_BODY_BYTES
from tests.router.front_fakes import CONTEXT_TOKENS, Front

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"


async def post(front: Front, path: str, **body: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}{path}", json=body)


async def dispatched(front: Front, path: str, **body: object) -> bytes:
    answer = await post(front, path, **body)
    assert answer.status_code == 200, answer.text
    return bytes(front.source.requests[-1].token_ids)


@pytest.mark.parametrize("prompt", ["abcdef", list(b"abcdef"), [list(b"abcdef")], ["abcdef"]])
async def test_the_last_tokens_are_kept(front, prompt):
    assert await dispatched(front, COMPLETION, prompt=prompt, truncate_prompt_tokens=2) == b"ef"
    assert await dispatched(front, COMPLETION, prompt=prompt, truncate_prompt_tokens=9) == b"abcdef"


async def test_a_chat_is_cut_after_it_is_rendered(front):
    messages = [{"role": "user", "content": "abc"}]
    kept = await dispatched(front, CHAT, messages=messages, truncate_prompt_tokens=5)
    assert kept == b":abc\n"


@pytest.mark.parametrize("prompt", ["x" * 2000, [120] * 2000])
async def test_what_would_not_fit_does_once_it_is_cut(front, prompt):
    assert (await post(front, COMPLETION, prompt=prompt)).status_code == 400
    fields = {"prompt": prompt, "truncate_prompt_tokens": -1}
    assert len(await dispatched(front, COMPLETION, **fields)) == CONTEXT_TOKENS - 1
    assert (
        len(await dispatched(front, COMPLETION, **fields, max_tokens=100)) == CONTEXT_TOKENS - 100
    )


async def test_a_large_body_is_cut_where_it_is_read(front):
    prompt = [120] * (LARGE_BODY_BYTES // 3)
    assert await dispatched(front, COMPLETION, prompt=prompt, truncate_prompt_tokens=3) == b"xxx"


@pytest.mark.parametrize("asked", [0, -2, CONTEXT_TOKENS + 1])
@pytest.mark.parametrize("path", [COMPLETION, CHAT])
async def test_other_numbers_are_refused_by_name(front, asked, path):
    prompt = {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    body = {"messages": prompt["messages"]} if path == CHAT else {"prompt": prompt["prompt"]}
    answer = await post(front, path, **body, truncate_prompt_tokens=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "truncate_prompt_tokens")


async def test_an_echo_of_a_prompt_that_is_cut_is_refused(front):
    answer = await post(front, COMPLETION, prompt="x", echo=True, truncate_prompt_tokens=1)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "truncate_prompt_tokens")
