"""Adapters over HTTP: listed, asked for by name, and loaded by who shows the join token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from cluster.adapter import Adapter
from cluster.errors import (
    AdapterRefused,
    InvalidRequest,
    NotAllowed,
    SplitserveError,
    UnknownModel,
    WrongToken,
)
from cluster.sampling import SamplingParams
from protos.membership_pb2 import AdapterAnswer, AdapterOutcome
from router.api.adapter_endpoints import AdapterBodies, AdapterEndpoint
from router.front.generation_request import GenerationRequest, TextPrompt, Wishes
from router.front.pipeline import CompletionPipeline
from router.front.served_model import ServedModel, unknown_model
from router.front.text_work import LARGE_BODY_BYTES
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.router.dispatch_bench import time_limits
from tests.router.front_fakes import MODEL, FakeSource, running_front, says, tool_model

ONE = Adapter("one", "a" * 32)
JSON = {"content-type": "application/json"}


def adapted_model() -> ServedModel:
    known = {"one": ONE}
    return replace(tool_model(), find_adapter=known.get, all_adapters=lambda: list(known.values()))


async def test_an_adapter_is_listed_with_its_parent_and_asked_for_by_name() -> None:
    async with running_front(model=adapted_model()) as front, httpx.AsyncClient() as http:
        models = (await http.get(f"{front.url}/v1/models")).json()["data"]
        assert [(each["id"], each.get("parent")) for each in models] == [
            (MODEL, None),
            ("one", MODEL),
        ]
        assert (await http.get(f"{front.url}/v1/models/one")).json()["parent"] == MODEL
        for path, prompt in (
            ("completions", {"prompt": "Hi"}),
            ("chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ):
            body = {"model": "one", **prompt}
            found = await http.post(f"{front.url}/v1/{path}", json=body)
            assert (found.status_code, found.json()["model"]) == (200, "one")
        plain = await http.post(f"{front.url}/v1/completions", json={"prompt": "Hi"})
        assert plain.json()["model"] == MODEL
        asked = [each.adapter for each in front.source.requests]
        assert asked == [ONE, ONE, None]


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
async def test_an_unknown_name_is_404_and_nothing_is_computed(padding: int) -> None:
    async with running_front(model=adapted_model()) as front, httpx.AsyncClient() as http:
        body = msgspec.json.encode({"model": "two", "prompt": "Hi"}) + b" " * padding
        url = f"{front.url}/v1/completions"
        found = await http.post(url, content=body, headers=JSON)
        assert (found.status_code, found.json()["error"]["code"]) == (404, "model_not_found")
        assert (await http.get(f"{front.url}/v1/models/two")).status_code == 404
        assert front.source.requests == []


class Orders:
    """AdapterOrders of a fleet that is played."""

    def __init__(self, *outcomes: AdapterOutcome) -> None:
        self.answer = AdapterAnswer(outcomes=outcomes)
        self.told: list[Any] = []

    async def load(self, request: Any) -> AdapterAnswer:
        self.told.append(request)
        return self.answer

    unload = load

    def may_be_known(self, name: str) -> bool:
        return name == "one"


def load_body(**changes: object) -> bytes:
    return msgspec.json.encode({"lora_name": "one", "lora_path": "folder/one", **changes})


async def test_an_order_goes_to_all_workers_and_their_digests_are_told() -> None:
    orders = Orders(
        AdapterOutcome(worker_id="decode-0", digest="d"),
        AdapterOutcome(worker_id="prefill-0", digest="d"),
    )
    done = await AdapterBodies(orders).load(load_body())  # type: ignore[arg-type]
    assert [each.worker_id for each in done.workers] == ["decode-0", "prefill-0"]
    assert (orders.told[0].name, orders.told[0].path) == ("one", "folder/one")
    await AdapterBodies(orders).unload(b'{"lora_name": "one"}')  # type: ignore[arg-type]
    assert orders.told[1].name == "one"
    with pytest.raises(UnknownModel, match="no worker has an adapter 'two'"):
        await AdapterBodies(orders).unload(b'{"lora_name": "two"}')  # type: ignore[arg-type]
    assert len(orders.told) == 2


async def test_one_worker_that_refuses_is_named() -> None:
    orders = Orders(
        AdapterOutcome(worker_id="decode-0", digest="d"),
        AdapterOutcome(worker_id="prefill-0", code="adapter_refused", message="use_dora is set"),
    )
    with pytest.raises(AdapterRefused, match="prefill-0: use_dora is set"):
        await AdapterBodies(orders).load(load_body())  # type: ignore[arg-type]
    with pytest.raises(UnknownModel):
        await AdapterBodies(Orders()).load(load_body())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"lora_name": 1}', load_body(pinned=True), load_body(load_inplace=False)]
)
async def test_a_body_that_asks_for_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        await AdapterBodies(Orders()).load(body)  # type: ignore[arg-type]


TOKENS = ("secret-token-of-the-fleet", "the-next-token-of-the-fleet")


@pytest.mark.parametrize(
    ("tokens", "shown", "error"),
    [
        ((), "Bearer anything", NotAllowed),
        (TOKENS, "", WrongToken),
        (TOKENS, "Bearer sk-a-clients-key", WrongToken),
        (TOKENS, "Bearer secret-token-of-the-flee", WrongToken),
        (TOKENS, "Bearer secret-token-of-the-fleet", None),
        (TOKENS, "secret-token-of-the-fleet", WrongToken),
        (TOKENS, "Basic secret-token-of-the-fleet", WrongToken),
        (TOKENS, "Bearer the-next-token-of-the-fleet", None),
        (TOKENS, "bearer  the-next-token-of-the-fleet ", None),
    ],
)
async def test_the_join_token_alone_opens_and_of_a_stranger_nothing_is_read(
    tokens: tuple[str, ...], shown: str, error: type[SplitserveError] | None
) -> None:
    served: list[Any] = []

    class Context:
        async def serve(self, *asked: Any) -> None:
            served.append(asked)

    async def nothing(*_: Any) -> None:
        raise AssertionError("a stranger's body was read, or answered here")

    endpoint = AdapterEndpoint(Context(), tokens, None)  # type: ignore[arg-type]
    scope = {"type": "http", "headers": [(b"authorization", shown.encode())]}
    if error is None:
        await endpoint(scope, nothing, nothing)  # type: ignore[arg-type]
        assert len(served) == 1
    else:
        with pytest.raises(error):
            await endpoint(scope, nothing, nothing)  # type: ignore[arg-type]
        assert served == []


@pytest.mark.parametrize(
    ("models", "asked", "is_let_in"),
    [
        ((), "one", True),
        ((), "", True),
        (("one",), "one", True),
        (("one",), "", False),
        ((MODEL,), "", True),
        ((MODEL,), "one", False),
    ],
)
async def test_a_key_is_for_the_names_that_it_has(
    models: tuple[str, ...], asked: str, is_let_in: bool
) -> None:
    pipeline = CompletionPipeline(
        model := adapted_model(), FakeSource(says("x")), InProcessText(model)
    )
    wanted = GenerationRequest(
        request_id="r",
        tenant=Tenant(models=models),
        prompt=TextPrompt("Hi"),
        wishes=Wishes(sampling=SamplingParams(max_tokens=2), max_tokens=2, adapter=asked),
        limits=time_limits(30.0),
    )
    if is_let_in:
        assert (await pipeline.prepare(wanted)).routed.adapter == (ONE if asked else None)
    else:
        hidden = UnknownModel if asked else NotAllowed  # as one that is not there
        with pytest.raises(hidden) as refused:
            await pipeline.prepare(wanted)
        if asked:
            absent, there = unknown_model(model, "two"), refused.value.message.replace("one", "two")
            assert (there, refused.value.param) == (absent.message, absent.param)


SAID = [{"role": "user", "content": "Hi"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi"},
    "/v1/chat/completions": {"messages": SAID},
    "/v1/messages": {"messages": SAID, "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": SAID},
    "/v1/responses": {"input": "Hi"},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [65]},
}


class KeyOf:
    """A Keyring that lets everybody in as one tenant."""

    def __init__(self, *models: str) -> None:
        self._tenant = Tenant(name="a", models=models)

    def let_in(self, authorization: str | None) -> Tenant:
        return self._tenant


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("path", ASKED)
async def test_a_key_is_told_the_same_of_an_adapter_that_it_is_not_for_and_of_none(
    path: str, padding: int
) -> None:
    """Also beside another fault, whichever is looked at first."""
    faults: list[dict[str, Any]] = [{}, {"no_such_field": 1}, {"temperature": 99.0, "stop": [""]}]
    async with (
        running_front(model=adapted_model(), keyring=KeyOf(MODEL)) as front,
        httpx.AsyncClient() as http,
    ):
        for fault in faults:
            told: list[tuple[int, str]] = []
            for name in ("one", "two"):
                body = msgspec.json.encode({"model": name, **ASKED[path], **fault})
                url = f"{front.url}{path}"
                answer = await http.post(url, content=body + b" " * padding, headers=JSON)
                error = answer.json()["error"]
                told.append((answer.status_code, str(error).replace(f"`{name}`", "NAME")))
            hidden, absent = told
            assert hidden == absent
            assert hidden[0] == (400 if fault else 404)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/messages/count_tokens"])
async def test_texts_are_for_the_names_of_a_key(path: str) -> None:
    async with (
        running_front(model=adapted_model(), keyring=KeyOf(MODEL, "one")) as front,
        httpx.AsyncClient() as http,
    ):
        told = [
            (await http.post(f"{front.url}{path}", json={"model": name, **ASKED[path]})).status_code
            for name in (MODEL, "one", "two")
        ]
    assert told == [200, 200, 404]


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("path", ASKED)
async def test_a_key_for_an_adapter_alone_is_told_at_every_path_that_it_is_not_for_the_base(
    path: str, padding: int
) -> None:
    async with (
        running_front(model=adapted_model(), keyring=KeyOf("one")) as front,
        httpx.AsyncClient() as http,
    ):
        for name, status in ((MODEL, 403), (None, 403), ("one", 200)):
            body = msgspec.json.encode({"model": name, **ASKED[path]}) + b" " * padding
            answer = await http.post(f"{front.url}{path}", content=body, headers=JSON)
            assert answer.status_code == status, name


async def test_a_page_names_what_was_asked_for_to_a_key_that_is_not_for_it() -> None:
    async with (
        running_front(model=adapted_model(), keyring=KeyOf(MODEL)) as front,
        httpx.AsyncClient() as http,
    ):
        for name in ("one", "two"):
            answer = await http.get(f"{front.url}/v1/models/{name}")
            assert (answer.status_code, f"`{name}`" in answer.text) == (404, True)
