"""API keys at both doors of a router process: asked before a request's body is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from openai import AsyncOpenAI

from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN
from cluster.rpc import open_channel
from protos import inference_pb2, inference_pb2_grpc
from router.tenants.api_key import KeyTerms, new_key
from router.tenants.key_file import changed_keys
from router.tenants.limits import LEAST_BURST
from tests.router.api.test_adapters_over_http import adapted_model
from tests.router.front_fakes import MODEL, says
from tests.router.test_router_process import Running, running_router

TOKEN = "of-this-fleet-alone"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
COMPLETIONS = "/v1/chat/completions"


class Keys:
    """A file, and keys of tenants in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acme, self.umbrella = self.add("acme"), self.add("umbrella")
        self.other_model = self.add("acme", models=("another",))
        self.rare = self.add("acme", requests_per_minute=0.5)

    def add(self, tenant: str, **terms: Any) -> str:
        record, key = new_key(tenant, KeyTerms(**terms))
        with changed_keys(self.path) as keys:
            keys[record.id] = record
        return key


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.json")


def http(router: Running, key: str | None = None) -> httpx.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=f"http://{router.addresses.http}", headers=headers)


async def over_grpc(router: Running, key: str | None, **fields: str) -> list[str]:
    """What has come; raises grpc.aio.AioRpcError."""
    metadata = [] if key is None else [("authorization", f"Bearer {key}")]
    async with open_channel(router.addresses.grpc) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        asked = inference_pb2.GenerateRequest(model=MODEL, **(fields or {"text": "Hi"}))
        return [each.request_id async for each in stub.Generate(asked, metadata=metadata)]


async def test_openai_s_client_is_answered_with_its_key_and_told_without(keys: Keys) -> None:
    async with running_router(says("Hello"), api_keys=str(keys.path)) as router:
        url = f"http://{router.addresses.http}/v1"
        async with AsyncOpenAI(base_url=url, api_key=keys.acme) as client:
            answer = await client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            assert answer.choices[0].message.content == "Hello"
        async with http(router) as stranger:
            refused = await stranger.post(COMPLETIONS, json=CHAT)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"]["code"] == "invalid_api_key"


PATHS = [COMPLETIONS, "/v1/models", "/tokenize", "/none", "/v1/models/x"]
PATHS += ["//v1/models", "/v1//models", "/%76%31/models", "/v1%2fmodels", "/v1/models/"]
PATHS += ["/V1/models", "/v1\\models", "/health/%2e%2e/v1/models", "/health;/v1/models"]
"""Of the router's, of nobody's, and as a check and a server may read them in two ways."""


@pytest.mark.parametrize("path", PATHS)
async def test_a_stranger_learns_nothing_on_any_path(keys: Keys, path: str) -> None:
    async with (
        running_router(says("Hello"), api_keys=str(keys.path)) as router,
        http(router, "sk-00000000-guess") as stranger,
    ):
        url = f"{str(stranger.base_url).rstrip('/')}{path}"
        for answer in (await stranger.get(url), await stranger.post(url, content=b"{")):
            assert answer.status_code == 401
            assert MODEL not in answer.text
        for probe in ("/live", "/health", "/ping"):
            assert (await stranger.get(probe)).status_code == 200


async def test_over_grpc_a_key_is_metadata(keys: Keys) -> None:
    async with running_router(says("Hello"), api_keys=str(keys.path)) as router:
        assert await over_grpc(router, keys.acme)
        for wrong in (None, "sk-00000000-guess"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await over_grpc(router, wrong, text="x" * 1_000_000)
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async with open_channel(router.addresses.grpc) as channel:
                stub = inference_pb2_grpc.InferenceStub(channel)
                await stub.ListModels(inference_pb2.ListModelsRequest())
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_the_key_makes_the_tenant_and_the_salt_and_no_field_does(keys: Keys) -> None:
    async with running_router(says("Hello"), api_keys=str(keys.path)) as router:
        for key in (keys.acme, keys.umbrella):
            async with http(router, key) as client:
                for salt in ("", "acme", "4:acme:"):
                    await client.post(COMPLETIONS, json={**CHAT, "cache_salt": salt})
        await over_grpc(router, keys.acme)
        requests = router.workers.source.requests
        assert [each.tenant for each in requests] == ["acme"] * 3 + ["umbrella"] * 3 + ["acme"]
        salts = [each.tenant_salt for each in requests]
        assert len(set(salts)) == 6 and salts[0] == salts[6]


async def test_a_key_that_is_not_for_this_model_is_refused_at_both_doors(keys: Keys) -> None:
    async with running_router(says("Hello"), api_keys=str(keys.path)) as router:
        async with http(router, keys.other_model) as client:
            refused = await client.post(COMPLETIONS, json=CHAT)
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "not_allowed"
        with pytest.raises(grpc.aio.AioRpcError) as over:
            await over_grpc(router, keys.other_model)
        assert over.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_both_doors_list_the_adapters_that_a_key_is_for(keys: Keys) -> None:
    of_base = keys.add("acme", models=(MODEL,))
    options = {"model": adapted_model(), "api_keys": str(keys.path)}
    async with running_router(says("Hello"), **options) as router:  # type: ignore[arg-type]
        for key, expected in ((keys.acme, [MODEL, "one"]), (of_base, [MODEL])):
            async with http(router, key) as client:
                listed = (await client.get("/v1/models")).json()["data"]
            assert [each["id"] for each in listed] == expected
            async with open_channel(router.addresses.grpc) as channel:
                stub = inference_pb2_grpc.InferenceStub(channel)
                asked = inference_pb2.ListModelsRequest()
                told = await stub.ListModels(asked, metadata=[("authorization", f"Bearer {key}")])
            assert [each.id for each in told.models] == expected


async def test_a_rate_counts_over_both_doors_and_says_when_to_come_again(keys: Keys) -> None:
    async with running_router(says("Hello"), api_keys=str(keys.path)) as router:
        async with http(router, keys.rare) as client:
            answers = [await client.post(COMPLETIONS, json=CHAT) for _ in range(LEAST_BURST + 1)]
        assert [each.status_code for each in answers] == [200] * LEAST_BURST + [429]
        refused = answers[-1]
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 60 <= int(refused.headers["retry-after"]) <= 180  # one in two minutes, and a half
        with pytest.raises(grpc.aio.AioRpcError) as over:
            await over_grpc(router, keys.rare)
        assert over.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_tokens_are_reserved_settled_and_told_in_openai_s_headers(keys: Keys) -> None:
    key = keys.add("acme", output_tokens_per_minute=100.0, input_tokens_per_minute=6000.0)
    async with (
        running_router(says("Hello"), api_keys=str(keys.path)) as router,
        http(router, key) as client,
    ):
        told = await client.post(COMPLETIONS, json={**CHAT, "max_tokens": 80})
        assert told.status_code == 200
        assert told.headers["x-ratelimit-limit-output-tokens"] == "100"
        assert 15 <= int(told.headers["x-ratelimit-remaining-output-tokens"]) <= 100
        assert told.headers["x-ratelimit-remaining-tokens"] in {
            told.headers["x-ratelimit-remaining-output-tokens"],
            told.headers["x-ratelimit-remaining-input-tokens"],
        }
        again = await client.post(COMPLETIONS, json={**CHAT, "max_tokens": 80})
        assert again.status_code == 200, "what was not made has been given back"


async def test_who_has_no_tokens_left_is_refused_before_its_body_is_read(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    key = keys.add("acme", budget_tokens=3.0, budget_period_s=1000.0)
    async with (
        running_router(says("Hello"), api_keys=str(keys.path)) as router,
        http(router, key) as client,
    ):
        assert (await client.post(COMPLETIONS, json=CHAT)).status_code == 200
        refused = await client.post(COMPLETIONS, content=b"{ is not looked at")
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert 900 <= int(refused.headers["retry-after"]) <= 1500
        assert refused.headers["x-ratelimit-remaining-budget"] == "0"
        counted = 'splitserve_limited_requests_total{class="standard",limit="budget"} 1.0'
        async with http(router, TOKEN) as operator:
            assert counted in (await operator.get("/metrics")).text


async def test_a_key_that_is_revoked_while_the_router_runs_is_refused(keys: Keys) -> None:
    async with (
        running_router(says("Hello"), api_keys=str(keys.path)) as router,
        http(router, keys.acme) as client,
    ):
        assert (await client.post(COMPLETIONS, json=CHAT)).status_code == 200
        with changed_keys(keys.path) as kept:
            kept.clear()
        while (await client.post(COMPLETIONS, json=CHAT)).status_code != 401:
            pass


async def test_a_router_does_not_start_with_keys_that_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        async with running_router(says("Hello"), api_keys=str(tmp_path / "none.json")):
            pass
