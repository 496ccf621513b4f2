"""An operator asks what a prompt would cost; nothing runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ContextTooLong, InvalidRequest, NoWorker, SplitserveError
from protos import router_admin_pb2
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest
from router.tenants.tenant import combined_salt
from tests.router.dispatch_bench import collect, is_idle, request
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import prefill_member, served_plane

Asked = router_admin_pb2.PriceRequest
IDS = list(range(40))


@asynccontextmanager
async def priced_fleet() -> AsyncIterator[tuple[FleetPlane, str, FakeDecodeWorker]]:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with worker, served_plane() as (plane, address):
        await plane.store.join(worker.member())
        await until(lambda: plane.why_not_ready() is None)
        await plane.store.join(prefill_member())
        yield plane, address, worker


async def price(address: str, asked: Asked) -> router_admin_pb2.Decision:
    link = GrpcDialer(None).operator(address)
    try:
        return await link.price(asked, timeout_s=10.0)
    finally:
        await link.close()


def ids(token_ids: list[int], **fields: object) -> Asked:
    return Asked(ids=router_admin_pb2.TokenIds(ids=token_ids), **fields)


def asked_by(tenant: str) -> RoutedRequest:
    return structs.replace(request(), token_ids=IDS, tenant_salt=combined_salt(tenant, ""))


async def test_every_candidate_has_its_price_and_nothing_is_sent_or_counted() -> None:
    async with priced_fleet() as (plane, address, worker):
        told = await price(address, ids(IDS))
        assert told.prompt_tokens == 40
        routes = {(item.prefill_worker, item.decode_worker) for item in told.candidates}
        assert routes == {("", "decode-1"), ("prefill-1", "decode-1")}
        assert sum(item.chosen for item in told.candidates) == 1
        assert all(item.total_ms > 0 for item in told.candidates)
        assert not worker.submitted and is_idle(plane) and plane.index.num_blocks == 0


async def test_a_prefix_that_a_worker_has_counts_for_its_tenant_alone() -> None:
    async with priced_fleet() as (plane, address, _):
        await collect(plane, asked_by("blue"))

        async def cached(tenant: str, **fields: object) -> int:
            told = await price(address, ids(IDS, tenant=tenant, **fields))
            return max(item.matched_tokens for item in told.workers)

        assert await cached("blue") == 40
        assert await cached("red") == 0
        assert await cached("blue", cache_salt="other") == 0


@pytest.mark.parametrize(
    ("asked", "num_tokens"),
    [(Asked(text="one two three"), 3), (Asked(chat="one two"), 3), (Asked(new_tokens=500), 500)],
)
async def test_texts_chats_and_lengths_are_priced(asked: Asked, num_tokens: int) -> None:
    async with priced_fleet() as (_, address, _):
        told = await price(address, asked)
        assert told.prompt_tokens == num_tokens
        assert not any(item.matched_tokens for item in told.workers)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Asked(), InvalidRequest),
        (Asked(text=""), InvalidRequest),
        (Asked(new_tokens=5), InvalidRequest),
        (Asked(new_tokens=2**31), ContextTooLong),
        (ids(IDS, max_tokens=5000), ContextTooLong),
    ],
)
async def test_what_a_request_would_be_refused_for_is_said(
    asked: Asked, error: type[SplitserveError]
) -> None:
    if asked.new_tokens == 5:
        asked.n = 100_000
    async with priced_fleet() as (plane, address, _):
        with pytest.raises(SplitserveError) as raised:
            await price(address, asked)
        assert isinstance(raised.value, error)
        assert is_idle(plane)


async def test_without_a_decode_worker_there_is_no_price() -> None:
    async with served_plane() as (_, address):
        with pytest.raises(NoWorker):
            await price(address, Asked(new_tokens=5))
