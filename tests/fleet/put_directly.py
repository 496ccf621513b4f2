"""Requests that are put to a decode worker as a router would, past the router."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

import grpc

from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from protos import membership_pb2, membership_pb2_grpc, worker_pb2, worker_pb2_grpc


async def members_of(router: grpc.aio.Channel) -> list[membership_pb2.Member]:
    """As the router has them now."""
    stub = membership_pb2_grpc.MembershipStub(router)
    view = await stub.Members(membership_pb2.MembersRequest())
    return [state.member for state in view.members]


def greedy_submit(
    token_ids: Sequence[int],
    num_tokens: int,
    prefill: Sequence[membership_pb2.Member],
    chance: random.Random,
    *,
    timeout_s: float = 60.0,
) -> worker_pb2.Submit:
    """Under a cache root that nobody has cached; without a prefill worker it is computed there."""
    cache_root = chance.randbytes(16)
    sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    return worker_pb2.Submit(
        request_id=cache_root.hex(),
        token_ids=token_ids,
        sampling=sampling_to_wire(sampling),
        prefill=map(target_of, prefill),
        cache_root=cache_root,
        timeout_ms=timeout_s * 1e3,
    )


def target_of(member: membership_pb2.Member) -> worker_pb2.PrefillTarget:
    return worker_pb2.PrefillTarget(
        worker_id=member.worker_id, incarnation=member.incarnation, address=member.address
    )


def identity_of(member: membership_pb2.Member) -> worker_pb2.WorkerIdentity:
    return worker_pb2.WorkerIdentity(
        worker_id=member.worker_id, incarnation=member.incarnation, pairing=member.pairing
    )


async def submit_alone(
    channel: grpc.aio.Channel, member: membership_pb2.Member, submit: worker_pb2.Submit
) -> tuple[list[int], worker_pb2.Ended]:
    """One request in a session of its own, as a router would send it."""
    tokens: list[int] = []
    async for frame in frames_alone(channel, member, submit):
        tokens += [t.token_id for item in frame.tokens for t in item.tokens]
        if frame.ended:
            return tokens, frame.ended[0]
    raise AssertionError("the decode worker ended a session")


async def frames_alone(
    channel: grpc.aio.Channel, member: membership_pb2.Member, submit: worker_pb2.Submit
) -> AsyncIterator[worker_pb2.WorkerFrame]:
    """All that is told of one request, to its end."""
    call = worker_pb2_grpc.DecodeWorkerStub(channel).Session()
    try:
        await call.write(worker_pb2.RouterMessage(open=identity_of(member)))
        await call.write(worker_pb2.RouterMessage(submit=submit))
        while (frame := await call.read()) is not grpc.aio.EOF:
            yield frame
            if frame.ended:
                return
    finally:
        call.cancel()
