"""Does a pair of workers work? A prompt of made-up tokens goes the way of a request.

Over a session of its own the decode worker is sent a prompt that one prefill worker is to compute,
under a root that no prefix cache knows. Whatever would keep a real request from going that way
keeps this one.
"""

from __future__ import annotations

import asyncio
import secrets

from cluster.dial.dialer import Dialer, SessionLink
from cluster.errors import DeadlineExceeded, WorkerLost, from_code
from cluster.membership.member import Member
from cluster.wire import pairing_to_wire
from protos import generation_pb2, worker_pb2
from protos.router_admin_pb2 import PairTrial
from router.fleet.own_address import own_address

_NEW_TOKENS = 2
"""With one alone, the first would be the last and no block would have to travel."""


async def try_pair(dialer: Dialer, prefill: Member, decode: Member, timeout_s: float) -> PairTrial:
    """How it went. Raises what the decode worker has against the session or the request, WorkerLost
    where it is not there, DeadlineExceeded, and InvalidRequest for other engines' servers."""
    own_address(prefill)  # which the decode worker dials
    link = dialer.session(own_address(decode))
    try:
        async with asyncio.timeout(timeout_s):
            return await _answer(link, prefill, decode, timeout_s)
    except TimeoutError as late:
        raise DeadlineExceeded(f"no answer within {timeout_s:.0f} s") from late
    finally:
        await link.close()


async def _answer(
    link: SessionLink, prefill: Member, decode: Member, timeout_s: float
) -> PairTrial:
    identity = worker_pb2.WorkerIdentity(
        worker_id=decode.worker_id,
        incarnation=decode.incarnation,
        pairing=pairing_to_wire(decode.pairing),
    )
    await link.write(worker_pb2.RouterMessage(open=identity))
    given_up = is_sent = False
    while (frame := await link.read()) is not None:
        if frame.HasField("opened") and not is_sent:
            submit = _prompt(prefill, decode, timeout_s)
            await link.write(worker_pb2.RouterMessage(submit=submit))
            is_sent = True
        given_up |= any(outcome.failed for outcome in frame.handoffs)
        for ended in frame.ended:
            if ended.HasField("error"):
                raise from_code(ended.error.code, ended.error.message)
            return PairTrial(given_up=given_up, timing=ended.timing)
    raise WorkerLost("the worker has ended the session without an answer")


def _prompt(prefill: Member, decode: Member, timeout_s: float) -> worker_pb2.Submit:
    """Two blocks and a token: small ids are in every vocabulary."""
    blocks = max(each.pairing.block_size_tokens for each in (prefill, decode))
    return worker_pb2.Submit(
        request_id=f"doctor-{secrets.token_hex(8)}",
        token_ids=[1 + index % 50 for index in range(2 * blocks + 1)],
        sampling=generation_pb2.SamplingParams(
            temperature=0.0, seed=0, max_tokens=_NEW_TOKENS, ignore_eos=True
        ),
        prefill=[
            worker_pb2.PrefillTarget(
                worker_id=prefill.worker_id,
                incarnation=prefill.incarnation,
                address=prefill.address,
            )
        ],
        cache_root=secrets.token_bytes(16),
        timeout_ms=timeout_s * 1000,
    )
