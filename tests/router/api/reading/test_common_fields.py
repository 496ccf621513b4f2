"""Fields that clients of OpenAI and vLLM send: honoured, without effect, or refused by name."""

import httpx
import pytest

from router.front.pipeline import SMALLEST_TOP_P
from tests.router.front_fakes import VOCAB_SIZE, Front, running_front, says

PATHS = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}


async def post(front: Front, path: str, **fields: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}{path}", json={**PATHS[path], **fields})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("top_k", [-1, 0, VOCAB_SIZE, 10**6])
async def test_top_k_of_everything_is_off(front, path, top_k):
    assert (await post(front, path, top_k=top_k)).status_code == 200
    assert front.source.requests[0].sampling.top_k == 0


@pytest.mark.parametrize("path", PATHS)
async def test_top_p_of_nothing_leaves_the_likeliest_token(front, path):
    assert (await post(front, path, top_p=0)).status_code == 200
    assert front.source.requests[0].sampling.top_p == SMALLEST_TOP_P


NO_EFFECT = {
    "prompt_cache_retention": "24h",
    "request_id": "mine",
    "priority": 3,
    "length_penalty": 1.2,
    "early_stopping": True,
    "spaces_between_special_tokens": False,
    "mm_processor_kwargs": {},
    "use_beam_search": False,
    "detokenize": True,
    "return_token_ids": False,
    "bad_words": [],
    "logits_processors": [],
}
REFUSED = {
    "detokenize": False,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "allowed_token_ids": [1],
    "bad_words": ["no"],
    "logits_processors": ["x"],
    "guided_json": {},
    "guided_regex": "a",
    "guided_choice": ["a"],
    "guided_grammar": 'start: "a"',
    "guided_decoding_backend": "auto",
    "guided_whitespace_pattern": " ",
    "kv_transfer_params": {"do_remote_decode": True},
    "vllm_xargs": {"a": 1},
}


@pytest.mark.parametrize("path", PATHS)
async def test_what_changes_no_answer_is_taken(front, path):
    assert (await post(front, path, **NO_EFFECT)).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", REFUSED)
async def test_what_would_change_the_answer_is_refused_by_name(front, path, name):
    answer = await post(front, path, **{name: REFUSED[name]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert front.source.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_a_stop_string_is_part_of_the_text_where_that_is_asked_for(front, path):
    for included, expected in ((False, "Hel"), (True, "Hello")):
        answer = await post(front, path, stop="lo", include_stop_str_in_output=included)
        (choice,) = answer.json()["choices"]
        assert choice.get("text", choice.get("message", {}).get("content")) == expected
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "Hi"),
        ({"skip_special_tokens": False}, "Hi"),
        ({"skip_special_tokens": False, "include_stop_str_in_output": True}, "Hi<eos>"),
    ],
)
async def test_special_tokens_are_written_out_where_that_is_asked_for(fields, expected):
    async with running_front(says("Hi")) as front:
        answer = await post(front, "/v1/completions", **fields)
    assert answer.json()["choices"][0]["text"] == expected
