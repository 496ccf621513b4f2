"""Both roles with engines in processes of their own, and KV blocks over NIXL between them."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import psutil
import pytest
import pytest_asyncio

from cluster.identity import Role
from cluster.membership.member import member_from_wire
from cluster.rpc import open_channel
from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from prefill_worker.service import PrefillWorker
from protos import membership_pb2, worker_pb2
from tests.decode_worker.decode_bench import RouterEnd, decode_worker, router_end
from tests.worker.worker_bench import NotingRouter, noting_router, options_for, tiny_card
from worker.engine.client import EngineClient
from worker.worker_process import Surroundings, WorkerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
START_TIMEOUT_S = 60.0
MODULES = {
    Role.PREFILL: "tests.worker.fake_prefill_process",
    Role.DECODE: "tests.worker.fake_decode_process",
}


@dataclass
class Worker:
    process: WorkerProcess
    exit_code: asyncio.Task[int]
    address: str
    engine_pid: int


@asynccontextmanager
async def running_worker(role: Role, router: NotingRouter):
    links: list[EngineClient] = []

    async def find_model(_options):
        return tiny_card()

    def make_link(_entry_module, spec):
        links.append(EngineClient(entry_module=MODULES[role], spec=spec))
        return links[-1]

    options = options_for(role, router.address, kv_transport="nixl", worker_id=f"{role}-0")
    service = PrefillWorker(World()) if role is Role.PREFILL else decode_worker()
    process = WorkerProcess(
        options, service, Surroundings(find_model=find_model, make_link=make_link)
    )
    exit_code = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await asyncio.wait((exit_code, process.address), return_when=asyncio.FIRST_COMPLETED)
        yield Worker(process, exit_code, process.address.result(), links[0].pid)
    finally:
        process.stop_requests.on_sigint()
        await asyncio.wait((exit_code,))


@dataclass
class Fleet:
    prefill: Worker
    decode: Worker
    members: dict[str, membership_pb2.Member]
    session: RouterEnd

    async def generate(self, name: str, prompt: list[int], *, remote: bool) -> worker_pb2.Ended:
        member = self.members["prefill-0"]
        target = worker_pb2.PrefillTarget(
            worker_id=member.worker_id, incarnation=member.incarnation, address=member.address
        )
        submit = worker_pb2.Submit(
            request_id=name,
            token_ids=prompt,
            sampling=sampling_to_wire(SamplingParams(max_tokens=12, temperature=0.8, seed=4)),
            prefill=[target] if remote else [],
            cache_root=name.encode().ljust(16, b"."),
            timeout_ms=30_000,
        )
        await self.session.say(submit=submit)
        return await self.session.ended(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet():
    """One for the file: each has four processes' starts. The last test ends it."""
    async with AsyncExitStack() as stack:
        router = await stack.enter_async_context(noting_router())
        prefill = await stack.enter_async_context(running_worker(Role.PREFILL, router))
        decode = await stack.enter_async_context(running_worker(Role.DECODE, router))
        channel = await stack.enter_async_context(open_channel(decode.address))
        await router.until(lambda: len(router.joins) == 2)
        members = {member.worker_id: member for member in router.joins}
        member = member_from_wire(members["decode-0"])
        session = router_end(channel, WorkerIdentity(member.key, member.pairing))
        yield Fleet(prefill, decode, members, session)


async def test_blocks_over_nixl_give_the_tokens_of_a_local_prefill(fleet):
    prompt = list(range(3, 120))
    remote = await fleet.generate("remote", prompt, remote=True)
    local = await fleet.generate("local", prompt, remote=False)
    assert (remote.error.code, local.error.code) == ("", "")
    assert fleet.session.tokens("remote") == fleet.session.tokens("local")
    assert remote.timing.prefill_worker == "prefill-0"
    assert remote.timing.kv_bytes == 30 * 2 * 2 * 2 * 4 * 8 * 4
    assert remote.timing.kv_transport.startswith("nixl/")
    assert local.timing.kv_bytes == 0


async def test_a_killed_engine_costs_its_worker_no_request_and_leaves_no_process(fleet):
    os.kill(fleet.prefill.engine_pid, signal.SIGKILL)
    assert await fleet.prefill.exit_code == 1
    prompt = list(range(4, 121))
    orphan = await fleet.generate("orphan", prompt, remote=True)
    local = await fleet.generate("alone", prompt, remote=False)
    assert (orphan.error.code, local.error.code) == ("", "")
    assert fleet.session.tokens("orphan") == fleet.session.tokens("alone")
    fleet.decode.process.stop_requests.on_sigterm()
    assert await fleet.decode.exit_code == 0
    for worker in (fleet.prefill, fleet.decode):
        assert not psutil.pid_exists(worker.engine_pid)
