"""A fleet whose workers still read their adapters: a name that nobody knows may come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx
import msgspec
import pytest

from cluster.generation import EngineLoad
from router.front.served_model import ServedModel
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.api.test_adapters_over_http import adapted_model
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.front_fakes import MODEL, running_front, says
from tests.router.planes import prefill_member, running_plane
from tests.router.test_keys_at_the_doors import CHAT, COMPLETIONS, Keys, http, over_grpc
from tests.router.test_router_process import running_router


@dataclass
class Reading:
    """Whether a worker reads."""

    is_on: bool = True

    def __call__(self) -> bool:
        return self.is_on

    @property
    def model(self) -> ServedModel:
        return replace(adapted_model(), has_unread_adapters=self)


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
async def test_an_unknown_name_may_be_tried_again_while_adapters_are_read(padding: int) -> None:
    reading = Reading()
    async with running_front(model=reading.model) as front, httpx.AsyncClient() as client:

        async def asked(name: str) -> httpx.Response:
            body = msgspec.json.encode({"model": name, "prompt": "Hi"}) + b" " * padding
            headers = {"content-type": "application/json"}
            return await client.post(f"{front.url}/v1/completions", content=body, headers=headers)

        told = await asked("two")
        assert (told.status_code, told.json()["error"]["code"]) == (503, "adapter_unread")
        assert int(told.headers["retry-after"]) >= 1 and "`two`" in told.json()["error"]["message"]
        assert (await client.get(f"{front.url}/v1/models/two")).status_code == 503
        for name in ("one", MODEL):
            assert (await asked(name)).status_code == 200
        reading.is_on = False
        told = await asked("two")
        assert (told.status_code, told.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_key_for_adapters_alone_is_let_in_while_they_are_read(tmp_path: Path) -> None:
    reading, keys = Reading(), Keys(tmp_path / "keys.json")
    asks = {**CHAT, "model": "another"}
    options = {"model": reading.model, "api_keys": str(keys.path)}
    async with (
        running_router(says("Hello"), **options) as router,  # type: ignore[arg-type]
        http(router, keys.other_model) as client,
    ):
        told = await client.post(COMPLETIONS, json=asks)
        assert (told.status_code, told.json()["error"]["code"]) == (503, "adapter_unread")
        for forbidden in ("one", "two"):  # of which it learns nothing
            other = await client.post(COMPLETIONS, json={**CHAT, "model": forbidden})
            assert (other.status_code, other.json()["error"]["code"]) == (503, "adapter_unread")
        with pytest.raises(grpc.aio.AioRpcError) as over:
            await over_grpc(router, keys.other_model)
        assert over.value.code() == grpc.StatusCode.PERMISSION_DENIED  # the model's own name
        told = await client.post(COMPLETIONS, json=CHAT)
        assert (told.status_code, told.json()["error"]["code"]) == (403, "not_allowed")
        reading.is_on = False
        told = await client.post(COMPLETIONS, json=asks)
        assert (told.status_code, told.json()["error"]["code"]) == (403, "not_allowed")


async def test_a_fleet_has_unread_adapters_while_a_worker_that_answers_says_so() -> None:
    prefill = prefill_member("prefill-0")
    async with FakeDecodeWorker() as worker, running_plane() as plane:
        decode = worker.member()
        for member in (decode, prefill):
            await plane.store.join(member)
        await until(lambda: plane.fleet.find(decode.key) is not None)
        adapters, orders, load = plane.adapters, plane.adapter_orders, EngineLoad()
        assert not adapters.has_unread() and not orders.is_known("one")
        await plane.store.beat(prefill.key, load, draining=False, num_unread_adapters=2)
        assert not adapters.has_unread() and orders.is_known("one")
        await plane.store.beat(prefill.key, load, draining=False)
        await plane.store.beat(decode.key, load, draining=False, num_unread_adapters=2)
        assert adapters.has_unread() and orders.is_known("one")
        plane.store.report(decode.key, load)
        assert adapters.has_unread(), "frames of its session say nothing of it"
        await plane.store.beat(decode.key, load, draining=False)
        assert not adapters.has_unread() and not orders.is_known("one")
