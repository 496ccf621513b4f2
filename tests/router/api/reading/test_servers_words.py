"""Words that only servers say to one another, from a client: none reaches a worker."""

import httpx
import pytest

from cluster.block_hash import cache_root
from tests.router.api.reading.test_common_fields import PATHS, post
from tests.router.front_fakes import Front, running_front

WORDS = {
    "kv_transfer_params": {"do_remote_prefill": True, "remote_block_ids": [[1, 2]]},
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "transfer_id": "shared",
    "bootstrap_host": "10.0.0.1",
    "bootstrap_room": 7,
    "prefill": [{"worker_id": "mine", "address": "10.0.0.1:9"}],
    "resume": [{"choice": 0, "token_ids": [1]}],
    "block_hashes": ["00" * 16],
    "cache_root": "AAAAAAAAAAAAAAAAAAAAAA==",
    "mm_hashes": {"image": ["00"]},
    "multi_modal_data": {"image": "psm_forged"},
    "prompt_embeds": "gASVKAAAAAAAAACMBXBvc2l4",
    "custom_logit_processor": "gASVKAAAAAAAAACMBXBvc2l4",
    "lora_path": "/etc",
    "tenant": "another",
    "tenant_salt": "another",
}
"""By which clients of other engines named peers, blocks, cache keys, pickles and files."""
REFUSED_STILL = {
    "/v1/chat/completions": {"kv_transfer_params"},
    "/v1/completions": {"kv_transfer_params", "prompt_embeds"},
}
"""Known, and not to be had."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", WORDS)
async def test_each_is_refused_by_name(front: Front, path: str, name: str) -> None:
    answer = await post(front, path, **{name: WORDS[name]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert front.source.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_where_unknown_words_are_left_out_they_change_nothing(path: str) -> None:
    async with running_front(ignores_unknown=True) as front:
        await post(front, path, seed=1)
        for name, word in WORDS.items():
            status = (await post(front, path, seed=1, **{name: word})).status_code
            assert status == (400 if name in REFUSED_STILL[path] else 200)
        sent = [(each.token_ids, each.sampling, each.tenant_salt) for each in front.source.requests]
        assert len(sent) == 1 + len(WORDS) - len(REFUSED_STILL[path])
        assert all(each == sent[0] for each in sent)


@pytest.mark.parametrize("salt", ["", " ", "\x00", "a\nb", "é" * 128, "‮", "🙂", "x" * 256])
async def test_any_text_is_a_salt_and_names_blocks_of_its_own(front: Front, salt: str) -> None:
    for each in (salt, salt + "."):
        status = (await post(front, "/v1/completions", cache_salt=each)).status_code
        assert status == (200 if len(each) <= 256 else 400)
    roots = {cache_root("pairing", each.tenant_salt) for each in front.source.requests}
    assert len(roots) == len(front.source.requests) >= 1


@pytest.mark.parametrize("salt", [b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xff"', b"[]", b"1e999"])
async def test_what_is_no_text_is_refused_and_not_an_error_of_ours(
    front: Front, salt: bytes
) -> None:
    body = b'{"prompt": "x", "cache_salt": ' + salt + b"}"
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{front.url}/v1/completions", content=body, headers=headers)
        assert answer.status_code == 400
    assert front.source.requests == []
