"""Processes of a fleet show each other certificates; what is wrong with one is said."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from cluster.dial.dialer import OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ConfigError, WorkerLost
from cluster.rpc import RpcServer
from cluster.tls import watched
from cluster.tls.files import CertificateFiles, check_among_peers
from cluster.tls.fleet import FLEET_TLS
from cluster.tls.servers import fleet_credentials
from protos import membership_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.cluster.test_join_token import Fleet
from tests.cluster.tls.authority import Authority

TIMEOUT_S = 20.0


class Place:
    """Where a process finds its certificates."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._monkeypatch.context() as patched:
            patched.setenv(FLEET_TLS, str(self.folder))
            yield

    @asynccontextmanager
    async def server(self) -> AsyncIterator[str]:
        """Its address."""
        with self.entered():
            server = RpcServer("127.0.0.1", 0, credentials=fleet_credentials())
        fleet = Fleet()
        server.add(membership_pb2_grpc.add_MembershipServicer_to_server, fleet, "membership")
        server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, fleet, "decode")
        try:
            yield f"127.0.0.1:{await server.start()}"
        finally:
            await server.stop(0)

    def dialer(self) -> GrpcDialer:
        with self.entered():
            return GrpcDialer()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Place]:
    monkeypatch.delenv(FLEET_TLS, raising=False)
    monkeypatch.setattr(watched, "LOOK_INTERVAL_S", 0.0)
    return Place(tmp_path / "here", monkeypatch), Place(tmp_path / "there", monkeypatch)


def good_at_first(name: str) -> Callable[[CertificateFiles], None]:
    """As a certificate whose time passes while its process runs."""
    looks = itertools.count()

    def check(files: CertificateFiles) -> None:
        if next(looks):
            check_among_peers(name)(files)

    return check


async def asked(link: OperatorLink) -> int:
    return (await link.members(timeout_s=TIMEOUT_S)).num_queued


async def what_one_hears(dialer: GrpcDialer, address: str) -> str:
    link = dialer.operator(address)
    with pytest.raises(WorkerLost) as failed:
        await asked(link)
    await link.close()
    return failed.value.message


async def test_processes_of_one_authority_speak(places: tuple[Place, Place]) -> None:
    here, there = places
    ours = Authority()
    ours.fill(here.folder)
    ours.fill(there.folder)
    async with here.server() as address:
        link = there.dialer().operator(address)
        assert await asked(link) == 7
        await link.close()


async def test_a_certificate_of_another_authority_is_named(places: tuple[Place, Place]) -> None:
    here, there = places
    Authority().fill(here.folder)
    Authority().fill(there.folder)
    async with here.server() as address:
        heard = await what_one_hears(there.dialer(), address)
    assert heard.startswith(f"the certificate of {address} is not good here: unable to get local")


async def test_a_certificate_that_has_expired_is_named_by_who_meets_it_and_by_who_has_it(
    places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places
    ours = Authority()
    ours.fill(here.folder)
    ours.fill(there.folder, expired=True)
    with pytest.raises(ConfigError, match=r"cert\.pem .*certificate has expired"):
        there.dialer()
    with monkeypatch.context() as patched:
        patched.setattr("cluster.tls.fleet.check_among_peers", good_at_first)
        async with there.server() as late:
            heard = await what_one_hears(here.dialer(), late)
    assert f"certificate of {late} is not good here: certificate has expired" in heard


async def test_who_is_refused_for_its_own_certificate_says_so(
    places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places
    ours = Authority()
    ours.fill(here.folder)
    ours.fill(there.folder, expired=True)
    async with here.server() as address:
        with monkeypatch.context() as patched:
            patched.setattr("cluster.tls.fleet.check_among_peers", good_at_first)
            dialer = there.dialer()
        heard = await what_one_hears(dialer, address)
    assert heard.startswith(f"{address} has hung up: ")
    assert f"{there.folder}/cert.pem" in heard and "certificate has expired" in heard


async def test_one_that_speaks_no_tls_is_named(places: tuple[Place, Place]) -> None:
    here, there = places
    Authority().fill(there.folder)
    server = RpcServer("127.0.0.1", 0)
    address = f"127.0.0.1:{await server.start()}"
    heard = await what_one_hears(there.dialer(), address)
    assert heard.startswith(f"{address} does not speak TLS") and FLEET_TLS in heard
    await server.stop(0)


async def test_who_has_no_certificate_learns_nothing(places: tuple[Place, Place]) -> None:
    here, _ = places
    Authority().fill(here.folder)
    async with here.server() as address:
        await what_one_hears(GrpcDialer(), address)


async def test_new_certificates_are_shown_by_both_sides_and_running_calls_go_on(
    places: tuple[Place, Place],
) -> None:
    here, there = places
    ours, theirs = Authority(), Authority()
    ours.fill(here.folder)
    ours.fill(there.folder)
    async with here.server() as address:
        dialer = there.dialer()
        session, link = dialer.session(address), dialer.operator(address)
        await session.write(worker_pb2.RouterMessage())
        assert await session.read() is not None
        assert await asked(link) == 7
        theirs.fill(here.folder)
        theirs.fill(there.folder)
        assert await asked(link) == 7, "old certificates are of an authority that nobody knows now"
        newcomer = there.dialer().operator(address)
        assert await asked(newcomer) == 7
        await session.write(worker_pb2.RouterMessage())
        assert await session.read() is not None
        for each in (session, link, newcomer):
            await each.close()


async def test_who_has_the_new_authority_first_goes_on_with_the_old_one_until_the_other_has_it(
    places: tuple[Place, Place],
) -> None:
    here, there = places
    theirs = Authority()
    ours = Authority()
    ours.fill(here.folder)
    ours.fill(there.folder)
    async with here.server() as address:
        link = there.dialer().operator(address)
        assert await asked(link) == 7
        theirs.fill(there.folder)
        for _ in range(3):
            assert await asked(link) == 7
        theirs.fill(here.folder)
        for _ in range(3):
            assert await asked(link) == 7
        await link.close()
