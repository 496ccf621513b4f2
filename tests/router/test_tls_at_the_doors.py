"""Certificates at both doors of a router process."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.common_options import TlsOptions
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ConfigError, WorkerLost
from cluster.rpc import open_channel
from cluster.tls import http as tls_http
from cluster.tls import watched
from cluster.tls.channels import SecureChannels
from cluster.tls.fleet import FLEET_NAME, FLEET_TLS, fleet_certificates
from protos import inference_pb2, inference_pb2_grpc
from tests.cluster.tls.authority import Authority
from tests.cluster.tls.test_watched import Told
from tests.free_ports import free_port
from tests.router.front_fakes import MODEL, says
from tests.router.test_router_process import FLEETS_SERVICE, Running, running_router

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
NAME = "127.0.0.1"


class Clients:
    """A router's certificates, its authority, and one more of it for clients."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.own = self.authority.fill(folder / "router", NAME)
        self.client = self.authority.fill(folder / "client", "a-client")
        self.stranger = Authority().fill(folder / "stranger", "a-client")

    def options(self, **more: object) -> dict[str, object]:
        apart = free_port()
        tls = TlsOptions(
            tls_cert=str(self.own / "cert.pem"), tls_key=str(self.own / "key.pem"), **more
        )
        return {"tls": tls, "fleet_port": apart}

    def context(self, shown: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.own / "ca.pem")
        if shown is not None:
            context.load_cert_chain(shown / "cert.pem", shown / "key.pem")
        return context

    async def chat(self, router: Running, shown: Path | None = None) -> str:
        """Raises httpx.TransportError."""
        verify = self.context(shown)
        async with httpx.AsyncClient(verify=verify, timeout=30) as client:
            url = f"https://{router.addresses.http}/v1/chat/completions"
            return (await client.post(url, json=CHAT)).text


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clients:
    monkeypatch.setattr(watched, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.delenv(FLEET_TLS, raising=False)
    return Clients(tmp_path)


async def listed(channel: grpc.aio.Channel) -> list[str]:
    stub = inference_pb2_grpc.InferenceStub(channel)
    answer = await stub.ListModels(inference_pb2.ListModelsRequest(), timeout=30)
    return [each.id for each in answer.models]


async def models_over_grpc(
    clients: Clients, router: Running, shown: Path | None = None
) -> list[str]:
    """Raises grpc.aio.AioRpcError."""
    own = [None, None]
    if shown is not None:
        own = [(shown / name).read_bytes() for name in ("key.pem", "cert.pem")]
    root = (clients.own / "ca.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(root, *own)
    async with grpc.aio.secure_channel(router.addresses.grpc, credentials) as channel:
        return await listed(channel)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side ends it."""
    came = b""
    try:
        while more := connection.recv(4096):
            came += more
    except ConnectionResetError:
        pass
    return came


async def test_both_doors_answer_by_tls_and_by_nothing_else(clients: Clients) -> None:
    async with running_router(says("ok"), **clients.options()) as router:
        assert "[DONE]" in await clients.chat(router)
        assert await models_over_grpc(clients, router) == [MODEL]
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"http://{router.addresses.http}/v1/models")
        async with grpc.aio.insecure_channel(router.addresses.grpc) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await listed(channel)


async def test_where_clients_need_certificates_others_are_refused_and_why_is_told_once(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(tls_http, "_log", told)
    await who_is_refused(clients, told)


def test_the_loop_of_real_routers_refuses_and_tells_the_same(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(tls_http, "_log", told)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(who_is_refused(clients, told))


async def who_is_refused(clients: Clients, told: Told) -> None:
    asking = clients.options(tls_client_ca=str(clients.own / "ca.pem"))
    async with running_router(says("ok"), **asking) as router:
        assert "[DONE]" in await clients.chat(router, clients.client)
        for _ in range(3):
            for shown in (None, clients.stranger):
                with pytest.raises((httpx.TransportError, ssl.SSLError)):
                    await clients.chat(router, shown)
        assert await models_over_grpc(clients, router, clients.client) == [MODEL]
        with pytest.raises(grpc.aio.AioRpcError):
            await models_over_grpc(clients, router, clients.stranger)
    assert sorted(told.reasons) == [
        "peer did not return a certificate",
        "unable to get local issuer certificate",
    ]


async def test_a_new_certificate_is_shown_without_a_restart(clients: Clients) -> None:
    async with running_router(says("ok"), **clients.options()) as router:
        assert "[DONE]" in await clients.chat(router)
        before = clients.context()
        later = Authority()
        later.fill(clients.own, NAME)
        assert "[DONE]" in await clients.chat(router)
        assert await models_over_grpc(clients, router) == [MODEL]
        async with httpx.AsyncClient(verify=before) as old:
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                await old.get(f"https://{router.addresses.http}/live")


async def test_a_handshake_that_is_none_disturbs_nobody(clients: Clients) -> None:
    async with running_router(says("ok"), **clients.options()) as router:
        host, _, port = router.addresses.http.partition(":")
        with (
            socket.create_connection((host, int(port))) as silent,
            socket.create_connection((host, int(port))) as garbage,
        ):
            garbage.sendall(b"\x16\x03\x01" + b"\xff" * 4096)
            silent.sendall(b"\x16")
            assert "[DONE]" in await clients.chat(router)
            garbage.settimeout(20)
            assert await asyncio.to_thread(rest_of, garbage) is not None


async def test_the_fleet_s_port_is_for_its_certificates_alone(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FLEET_TLS, str(Authority().fill(tmp_path / "fleet")))
    options, certificates = clients.options(), fleet_certificates()
    assert certificates is not None
    inside = SecureChannels(certificates, FLEET_NAME)
    async with running_router(says("ok"), **options) as router:
        address = f"{NAME}:{options['fleet_port']}"
        async with open_channel(address, secure=inside) as channel:
            question = health_pb2.HealthCheckRequest(service=FLEETS_SERVICE)
            answer = await health_pb2_grpc.HealthStub(channel).Check(question)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        monkeypatch.setenv(FLEET_TLS, str(Authority().fill(tmp_path / "theirs")))
        outside = GrpcDialer().operator(address)
        with pytest.raises(WorkerLost, match=f"the certificate of {address} is not good here"):
            await outside.members(timeout_s=30)
        await outside.close()
        assert await models_over_grpc(clients, router) == [MODEL]


@pytest.mark.parametrize("which", ["clients", "fleet"])
async def test_where_certificates_are_shown_the_fleet_has_a_port_of_its_own(
    which: str, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = clients.options()
    if which == "fleet":
        monkeypatch.setenv(FLEET_TLS, str(Authority().fill(tmp_path / "fleet")))
        options = {}
    with pytest.raises(ConfigError, match=r"--grpc-port 0 .* give the fleet a --fleet-port"):
        async with running_router(says("ok"), **options | {"fleet_port": None}):
            pass
