"""A stranger walks every port that a router can have: nothing is told, and nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

from cluster.aside_options import AsideOptions
from cluster.common_options import PageOptions, VllmOptions
from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.join_token import JOIN_TOKEN
from cluster.kv_shape import KvShape
from cluster.process.loop_share import LoopShare
from cluster.process.signals import StopRequests
from cluster.rpc import open_channel
from cluster.world import World
from protos import inference_pb2, inference_pb2_grpc, membership_pb2, membership_pb2_grpc
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.page.listener import PageListener
from router.router_process import RouterProcess
from router.text_worker.in_process import InProcessText
from router.vllm.introduction import FrontedModel
from tests.fleet.test_strangers import WORDS, asked_over_grpc, heard_at
from tests.free_ports import free_port
from tests.router.front_fakes import MODEL, byte_model, until
from tests.router.picker.gateway import BODY, gateway_call, refusal_of
from tests.router.picker.http_vllm import HttpVllm, http_vllm
from tests.router.test_keys_at_the_doors import Keys

TOKEN = "of-this-fleet-alone"
SECRET_PROMPT = "The lighthouse keeper never told anyone about the copper key."
PATHS = ("/", "/metrics", "/version", "/v1/models", "/events", "/session", "/docs", "/none")
NEAR = "127.0.0.1"


@dataclass
class Walked:
    plane: FleetPlane
    server: HttpVllm
    key: str
    ports: dict[str, int]
    """By their options."""

    @property
    def secrets(self) -> list[str]:
        return [TOKEN, self.key, SECRET_PROMPT, "acme"]

    @property
    def names(self) -> list[str]:
        """Of the fleet and what it serves."""
        members = [item.member for item in self.plane.fleet.members]
        return [MODEL, *(member.worker_id for member in members), "splitserve_member"]


@pytest.fixture
async def walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Walked]:
    """With keys, a vLLM server behind it, all its ports, and one answer that somebody has had."""
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    keys, model, world, share = Keys(tmp_path / "keys.json"), byte_model(), World(), LoopShare()
    flags = ("port", "grpc_port", "fleet_port", "page_port", "ext_proc_port", "fleet_metrics_port")
    ports = {flag: free_port(NEAR) for flag in flags}
    async with http_vllm() as server:
        server.answers.set()
        server.goes_on.set()
        options = RouterOptions(
            **{flag: ports[flag] for flag in ("port", "grpc_port", "fleet_port", "ext_proc_port")},  # type: ignore[arg-type]
            aside=AsideOptions(fleet_metrics_port=ports["fleet_metrics_port"]),
            page=PageOptions(page_port=ports["page_port"]),
            api_keys=str(keys.path),
            vllm_servers=VllmOptions(vllm=f"http://{server.address}"),
            beat_interval_s=0.05,
        )
        shape = KvShape(num_layers=2, num_planes=2, num_kv_heads=1, head_dim=8)
        encode = model.tokenizer.encode
        fronted = FrontedModel(
            name=model.name,
            weights_digest="aa",
            tokenizer_digest="bb",
            kv_shape=shape,
            encode=encode,
        )
        plane = FleetPlane(options, OwnModel(), world, fronted=fronted, share=share)
        page = PageListener.of(options, plane, model.name, world, share)
        parts = (options, model, plane, InProcessText(model), StopRequests(), world)
        process = RouterProcess(*parts, share=share, page=page, passing=plane.passing)
        running = asyncio.create_task(process.run())
        try:
            await process.addresses
            await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1, "the server has joined")
            found = Walked(plane, server, keys.acme, ports)
            await _ask(found)
            before = [item.member for item in plane.fleet.members]
            yield found
            assert [item.member for item in plane.fleet.members] == before
            await _ask(found)
        finally:
            process.stop_requests.on_sigint()
            assert await running == 0


async def _ask(walked: Walked) -> None:
    """As a client with a key: it goes to the server, whose fake knows how to answer gateways."""
    num_before = len(walked.server.asked)
    body = {"prompt": SECRET_PROMPT, "max_tokens": 3}
    headers = {"Authorization": f"Bearer {walked.key}"}
    async with httpx.AsyncClient(base_url=f"http://{NEAR}:{walked.ports['port']}") as client:
        await client.post("/v1/completions", json=body, headers=headers, timeout=30)
    assert len(walked.server.asked) > num_before


async def _said_to_a_stranger(port: int, **headers: str) -> list[str]:
    """Over HTTP; nothing from who speaks another protocol."""
    told = []
    async with httpx.AsyncClient(base_url=f"http://{NEAR}:{port}", headers=headers) as client:
        for path in PATHS:
            try:
                async with asyncio.timeout(5), client.stream("GET", path) as answer:
                    told.append(f"{answer.status_code} {path} {answer.headers}")
                    async for piece in answer.aiter_text():
                        told.append(piece)
                        if path == "/events":
                            break
            except httpx.TransportError:
                continue
    return told


async def test_no_port_tells_a_secret_whatever_is_said_to_it(walked: Walked) -> None:
    said = [(flag, name) for flag in walked.ports for name in WORDS]
    heard = await asyncio.gather(
        *(heard_at((NEAR, walked.ports[flag]), WORDS[name]) for flag, name in said)
    )
    for (flag, name), answer in zip(said, heard, strict=True):
        for secret in walked.secrets:
            assert secret.encode() not in answer, f"{name} at {flag}"
    for flag, port in walked.ports.items():
        told = "\n".join(await _said_to_a_stranger(port))
        assert not [secret for secret in walked.secrets if secret in told], flag


@pytest.mark.parametrize("flag", ["port", "grpc_port", "fleet_port", "ext_proc_port"])
async def test_where_strangers_come_nobody_hears_of_model_workers_or_counts(
    walked: Walked, flag: str
) -> None:
    port = walked.ports[flag]
    told = await _said_to_a_stranger(port)
    told += [str(await heard_at((NEAR, port), words)) for words in WORDS.values()]
    assert not [name for name in walked.names if name in "\n".join(told)]
    assert not any(line.startswith("200 ") for line in told)


async def test_at_the_page_s_port_who_comes_from_elsewhere_is_told_nothing_of_the_fleet(
    walked: Walked,
) -> None:
    port = walked.ports["page_port"]
    for elsewhere in ({"Host": "evil.example"}, {"X-Forwarded-For": "203.0.113.9"}):
        told = "\n".join(await _said_to_a_stranger(port, **elsewhere))
        assert not [name for name in walked.names if name in told], elsewhere
    near = "\n".join(await _said_to_a_stranger(port))
    assert walked.names[1] in near, "on this machine it is told what is counted"


async def test_at_the_port_for_prometheus_there_is_nothing_but_what_is_counted(
    walked: Walked,
) -> None:
    told = await _said_to_a_stranger(walked.ports["fleet_metrics_port"])
    found = [line.split()[1] for line in told if line.startswith("200 ")]
    assert found == ["/metrics"]
    assert "splitserve_member" in "\n".join(told)


async def test_without_the_token_no_order_of_the_fleet_is_taken_at_any_port(walked: Walked) -> None:
    refused = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}
    codes = await asked_over_grpc(f"{NEAR}:{walked.ports['fleet_port']}")
    assert set(codes) == refused
    for flag in ("grpc_port", "ext_proc_port"):
        codes = await asked_over_grpc(f"{NEAR}:{walked.ports[flag]}")
        assert grpc.StatusCode.UNIMPLEMENTED in set(codes) <= refused, flag
    address = f"{NEAR}:{walked.ports['fleet_port']}"
    async with open_channel(address, token=TOKEN) as channel:
        told = await membership_pb2_grpc.MembershipStub(channel).Members(
            membership_pb2.MembersRequest()
        )
        assert len(told.members) == 1


async def test_without_a_key_nobody_is_answered_at_any_port(walked: Walked) -> None:
    asked = inference_pb2.GenerateRequest(model=MODEL, text="Hi")
    for flag, expected in {
        "grpc_port": grpc.StatusCode.UNAUTHENTICATED,
        "fleet_port": grpc.StatusCode.UNIMPLEMENTED,
        "ext_proc_port": grpc.StatusCode.UNIMPLEMENTED,
    }.items():
        async with open_channel(f"{NEAR}:{walked.ports[flag]}", token=TOKEN) as channel:
            call = inference_pb2_grpc.InferenceStub(channel).Generate(asked)
            assert await call.code() is expected, flag
    async with gateway_call(f"{NEAR}:{walked.ports['ext_proc_port']}") as gateway:
        status, error = refusal_of(await gateway.ask(BODY))
        assert (status, error["code"]) == (401, "invalid_api_key")
    server = [item for item in walked.plane.fleet.members if item.num_in_flight]
    assert server == []
