"""What a router answers to operators before and after it has workers."""

from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import structs

from cluster.rpc import open_channel
from protos import router_admin_pb2, router_admin_pb2_grpc
from router.control.admin_service import ADMIN_SERVICE_NAME
from router.control.membership_service import SERVICE_NAME
from tests.router.dispatch_bench import collect, request
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import served_plane


async def test_workers_and_operators_are_served_while_no_request_could_be() -> None:
    async with served_plane() as (_, address), open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in (SERVICE_NAME, ADMIN_SERVICE_NAME):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_request_is_explained_under_the_id_that_its_client_knows() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_ms": 3.0}
    async with (
        worker,
        served_plane() as (plane, address),
        open_channel(address) as channel,
    ):
        await plane.store.join(worker.member())
        await until(lambda: plane.why_not_ready() is None)
        stub = router_admin_pb2_grpc.RouterAdminStub(channel)
        for name in ("mine-0123456789ab", "mine-ba9876543210"):
            await collect(plane, structs.replace(request(), request_id=name))
        answer = await stub.Explain(router_admin_pb2.ExplainRequest(request_id="mine"))
        assert [d.request_id for d in answer.decisions] == [
            "mine-ba9876543210",
            "mine-0123456789ab",
        ]
        assert answer.decisions[0].candidates[0].decode_worker == "decode-1"
        assert answer.decisions[0].reason == "no_prefill_worker"
        assert answer.decisions[0].usage.completion_tokens == 2
        for unknown in ("", "other", "min"):
            wanted = router_admin_pb2.ExplainRequest(request_id=unknown)
            assert not (await stub.Explain(wanted)).decisions
